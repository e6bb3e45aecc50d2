//! RM's status codes that this driver returns, by name. Source: `nvstatuscodes.h`.

use doorbell_ioctl::abi::nvrm::Status;

pub const GPU_IS_LOST: Status = Status(0x0f);
pub const ILLEGAL_ACTION: Status = Status(0x16);
pub const GPU_UUID_NOT_FOUND: Status = Status(0x12);
pub const IN_USE: Status = Status(0x17);
pub const INSERT_DUPLICATE_NAME: Status = Status(0x19);
pub const INSUFFICIENT_RESOURCES: Status = Status(0x1a);
pub const INVALID_ADDRESS: Status = Status(0x1e);
pub const INVALID_ARGUMENT: Status = Status(0x1f);
pub const INVALID_BASE: Status = Status(0x20);
pub const INVALID_CHANNEL: Status = Status(0x21);
pub const INVALID_CLASS: Status = Status(0x22);
pub const INVALID_CLIENT: Status = Status(0x23);
pub const INVALID_DEVICE: Status = Status(0x26);
pub const INVALID_EVENT: Status = Status(0x28);
pub const INVALID_FLAGS: Status = Status(0x29);
pub const INVALID_INDEX: Status = Status(0x2c);
pub const INVALID_LIMIT: Status = Status(0x2e);
pub const INVALID_OBJECT: Status = Status(0x31);
pub const INVALID_OBJECT_HANDLE: Status = Status(0x33);
pub const INVALID_OBJECT_PARENT: Status = Status(0x36);
pub const INVALID_OFFSET: Status = Status(0x37);
pub const INVALID_OWNER: Status = Status(0x39);
pub const INVALID_PARAM_STRUCT: Status = Status(0x3a);
pub const INVALID_STATE: Status = Status(0x40);
pub const NO_MEMORY: Status = Status(0x51);
pub const NOT_SUPPORTED: Status = Status(0x56);
pub const OBJECT_NOT_FOUND: Status = Status(0x57);
pub const OPERATING_SYSTEM: Status = Status(0x59);
pub const OUT_OF_RANGE: Status = Status(0x5b);
pub const PAGE_TABLE_NOT_AVAIL: Status = Status(0x5d);
pub const RC_ERROR: Status = Status(0x60);
pub const STATE_IN_USE: Status = Status(0x63);
pub const TIMEOUT: Status = Status(0x65);
pub const UVM_ADDRESS_IN_USE: Status = Status(0x68);
pub const WARN_NOTHING_TO_DO: Status = Status(0x1_0006);
