//! `amd_queue_t` and `amd_signal_t`: the structures in memory that an AQL queue's pointers and a packet's signals are
//! part of.
//!
//! Source: docs/amd.md 2.7 (`amd_hsa_queue.h`, `amd_hsa_signal.h`). Offsets are in bytes; all fields are little-endian.

/// Bytes of `amd_queue_t`.
pub const AMD_QUEUE_BYTES: usize = 256;

/// Byte offsets in `amd_queue_t`.
#[allow(missing_docs)]
pub mod queue_offset {
    pub const TYPE: u64 = 0;
    pub const FEATURES: u64 = 4;
    pub const BASE_ADDRESS: u64 = 8;
    pub const DOORBELL_SIGNAL: u64 = 16;
    pub const SIZE: u64 = 24;
    pub const ID: u64 = 32;
    pub const CAPS: u64 = 40;
    pub const WRITE_DISPATCH_ID: u64 = 56;
    pub const GROUP_SEGMENT_APERTURE_BASE_HI: u64 = 64;
    pub const PRIVATE_SEGMENT_APERTURE_BASE_HI: u64 = 68;
    pub const MAX_CU_ID: u64 = 72;
    pub const MAX_WAVE_ID: u64 = 76;
    pub const READ_DISPATCH_ID: u64 = 128;
    pub const READ_DISPATCH_ID_FIELD_BASE_BYTE_OFFSET: u64 = 136;
    pub const COMPUTE_TMPRING_SIZE: u64 = 140;
    pub const SCRATCH_RESOURCE_DESCRIPTOR: u64 = 144;
    pub const SCRATCH_BACKING_MEMORY_LOCATION: u64 = 160;
    pub const SCRATCH_WAVE64_LANE_BYTE_SIZE: u64 = 176;
    pub const QUEUE_PROPERTIES: u64 = 180;
    pub const QUEUE_INACTIVE_SIGNAL: u64 = 192;
}

/// Byte offsets in `amd_signal_t`.
#[allow(missing_docs)]
pub mod signal_offset {
    pub const KIND: u64 = 0;
    pub const VALUE: u64 = 8;
    pub const EVENT_MAILBOX_PTR: u64 = 16;
    pub const EVENT_ID: u64 = 24;
    pub const START_TS: u64 = 32;
    pub const END_TS: u64 = 40;
    pub const QUEUE_PTR: u64 = 48;
}

/// `queue_properties`: pointers have 64 bits.
pub const QUEUE_PROPERTIES_IS_PTR64: u32 = 1 << 1;
/// `queue_properties`: completion signals get timestamps.
pub const QUEUE_PROPERTIES_ENABLE_PROFILING: u32 = 1 << 3;

/// Error masks that the firmware stores into `queue_inactive_signal`.
#[allow(missing_docs)]
pub mod queue_error {
    pub const NOT_ENOUGH_SCRATCH: u64 = 0x1;
    pub const BAD_DIMENSIONS: u64 = 0x2;
    pub const TOO_MUCH_LDS: u64 = 0x4;
    pub const BAD_CODE_OBJECT: u64 = 0x8;
    pub const BAD_PACKET: u64 = 0x20;
    pub const WORKGROUP_TOO_LARGE: u64 = 0x40;
    pub const TOO_MANY_VGPRS: u64 = 0x80;
    pub const UNSUPPORTED_PACKET: u64 = 0x100;
    pub const APERTURE_VIOLATION: u64 = 0x2000_0000;
    pub const ILLEGAL_INSTRUCTION: u64 = 0x4000_0000;
    pub const TRAP: u64 = 0x8000_0000;
}

/// The fields of `amd_queue_t` that a driver sets and the firmware reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmdQueue {
    /// Address of the ring.
    pub base: u64,
    /// Packets in the ring.
    pub size_packets: u32,
    pub id: u64,
    pub write_dispatch_id: u64,
    pub group_aperture_hi: u32,
    pub private_aperture_hi: u32,
    pub max_cu_id: u32,
    pub max_wave_id: u32,
    pub read_dispatch_id: u64,
    /// Offset of the read pointer in this structure: 128.
    pub read_dispatch_id_field_offset: u32,
    pub compute_tmpring_size: u32,
    pub scratch_resource_descriptor: [u32; 4],
    pub scratch_backing: u64,
    pub scratch_wave64_lane_bytes: u32,
    pub properties: u32,
    /// Address of an `amd_signal_t` for error masks; 0 for none.
    pub queue_inactive_signal: u64,
}

fn put<const N: usize>(bytes: &mut [u8; AMD_QUEUE_BYTES], at: u64, value: [u8; N]) {
    let at = at as usize;
    bytes[at..at + N].copy_from_slice(&value);
}

fn get<const N: usize>(bytes: &[u8; AMD_QUEUE_BYTES], at: u64) -> [u8; N] {
    let at = at as usize;
    std::array::from_fn(|i| bytes[at + i])
}

impl AmdQueue {
    /// The structure's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; AMD_QUEUE_BYTES] {
        use queue_offset as o;
        let mut b = [0; AMD_QUEUE_BYTES];
        put(&mut b, o::BASE_ADDRESS, self.base.to_le_bytes());
        put(&mut b, o::SIZE, self.size_packets.to_le_bytes());
        put(&mut b, o::ID, self.id.to_le_bytes());
        put(&mut b, o::WRITE_DISPATCH_ID, self.write_dispatch_id.to_le_bytes());
        put(&mut b, o::GROUP_SEGMENT_APERTURE_BASE_HI, self.group_aperture_hi.to_le_bytes());
        put(&mut b, o::PRIVATE_SEGMENT_APERTURE_BASE_HI, self.private_aperture_hi.to_le_bytes());
        put(&mut b, o::MAX_CU_ID, self.max_cu_id.to_le_bytes());
        put(&mut b, o::MAX_WAVE_ID, self.max_wave_id.to_le_bytes());
        put(&mut b, o::READ_DISPATCH_ID, self.read_dispatch_id.to_le_bytes());
        put(&mut b, o::READ_DISPATCH_ID_FIELD_BASE_BYTE_OFFSET, self.read_dispatch_id_field_offset.to_le_bytes());
        put(&mut b, o::COMPUTE_TMPRING_SIZE, self.compute_tmpring_size.to_le_bytes());
        for (at, word) in (o::SCRATCH_RESOURCE_DESCRIPTOR..).step_by(4).zip(self.scratch_resource_descriptor) {
            put(&mut b, at, word.to_le_bytes());
        }
        put(&mut b, o::SCRATCH_BACKING_MEMORY_LOCATION, self.scratch_backing.to_le_bytes());
        put(&mut b, o::SCRATCH_WAVE64_LANE_BYTE_SIZE, self.scratch_wave64_lane_bytes.to_le_bytes());
        put(&mut b, o::QUEUE_PROPERTIES, self.properties.to_le_bytes());
        put(&mut b, o::QUEUE_INACTIVE_SIGNAL, self.queue_inactive_signal.to_le_bytes());
        b
    }

    /// Parses the structure's bytes.
    #[must_use]
    pub fn parse(b: &[u8; AMD_QUEUE_BYTES]) -> Self {
        use queue_offset as o;
        let u32_at = |at| u32::from_le_bytes(get(b, at));
        let u64_at = |at| u64::from_le_bytes(get(b, at));
        Self {
            base: u64_at(o::BASE_ADDRESS),
            size_packets: u32_at(o::SIZE),
            id: u64_at(o::ID),
            write_dispatch_id: u64_at(o::WRITE_DISPATCH_ID),
            group_aperture_hi: u32_at(o::GROUP_SEGMENT_APERTURE_BASE_HI),
            private_aperture_hi: u32_at(o::PRIVATE_SEGMENT_APERTURE_BASE_HI),
            max_cu_id: u32_at(o::MAX_CU_ID),
            max_wave_id: u32_at(o::MAX_WAVE_ID),
            read_dispatch_id: u64_at(o::READ_DISPATCH_ID),
            read_dispatch_id_field_offset: u32_at(o::READ_DISPATCH_ID_FIELD_BASE_BYTE_OFFSET),
            compute_tmpring_size: u32_at(o::COMPUTE_TMPRING_SIZE),
            scratch_resource_descriptor: std::array::from_fn(|i| u32_at(o::SCRATCH_RESOURCE_DESCRIPTOR + 4 * i as u64)),
            scratch_backing: u64_at(o::SCRATCH_BACKING_MEMORY_LOCATION),
            scratch_wave64_lane_bytes: u32_at(o::SCRATCH_WAVE64_LANE_BYTE_SIZE),
            properties: u32_at(o::QUEUE_PROPERTIES),
            queue_inactive_signal: u64_at(o::QUEUE_INACTIVE_SIGNAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_at_the_runtimes_offsets() {
        let queue = AmdQueue {
            write_dispatch_id: 0x11,
            read_dispatch_id: 0x22,
            read_dispatch_id_field_offset: 128,
            scratch_resource_descriptor: [1, 2, 3, 0x2081_4fac],
            queue_inactive_signal: 0x7f00_0000_4000,
            ..AmdQueue::default()
        };
        let bytes = queue.emit();
        assert_eq!((bytes[56], bytes[128], bytes[136]), (0x11, 0x22, 128));
        assert_eq!(bytes[156..160], [0xac, 0x4f, 0x81, 0x20]);
        assert_eq!(bytes[192..200], [0, 0x40, 0, 0, 0, 0x7f, 0, 0]);
        assert_eq!(AmdQueue::parse(&bytes), queue);
    }
}
