//! RM's codes, as `nvstatuscodes.h` names them.

use doorbell_ioctl::abi::nvrm::Status;
macro_rules! codes {
    ($($name:ident = $value:literal;)*) => { $(#[doc = stringify!($name)] pub(crate) const $name: Status = Status($value);)* };
}
codes! {
    ILLEGAL_ACTION = 0x16; GPU_UUID_NOT_FOUND = 0x12; INSERT_DUPLICATE_NAME = 0x19; INSUFFICIENT_RESOURCES = 0x1a;
    INSUFFICIENT_PERMISSIONS = 0x1b;
    INVALID_ADDRESS = 0x1e; INVALID_ARGUMENT = 0x1f; INVALID_CHANNEL = 0x21;
    INVALID_CLASS = 0x22; INVALID_CLIENT = 0x23; INVALID_DEVICE = 0x26; INVALID_EVENT = 0x28; INVALID_FLAGS = 0x29;
    INVALID_LIMIT = 0x2e; INVALID_OBJECT = 0x31; INVALID_OBJECT_HANDLE = 0x33; INVALID_OBJECT_PARENT = 0x36;
    INVALID_OFFSET = 0x37; INVALID_STATE = 0x40; NO_MEMORY = 0x51; NOT_SUPPORTED = 0x56;
    OBJECT_NOT_FOUND = 0x57; OPERATING_SYSTEM = 0x59; OUT_OF_RANGE = 0x5b; STATE_IN_USE = 0x63;
    UVM_ADDRESS_IN_USE = 0x68;
}
