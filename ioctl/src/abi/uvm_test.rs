//! UVM's tests of itself: calls of `/dev/nvidia-uvm` that the module answers when it is loaded with
//! `uvm_enable_builtin_tests=1`; without it each one is `ENOSYS`.
//!
//! Source: `uvm_test_ioctl.h` of the open kernel modules 535.288, 550.163, 570.211, 580.142 and 595.45: numbers, sizes
//! and the status's offset as a compiler finds them; a call is numbered from 200 on. A form is taken to hold from the
//! first of these releases that has it. 260 and 261 were ENABLE_ and DISABLE_NVLINK_PEER_ACCESS before 595, and 311 is
//! PMM_GET_ALLOC_LIST from there on, with structs of the same size. Left out: the fields, which belong to each test.

use super::nvrm::STATUSES;
use super::{Desc, Dir, FieldDesc, Kind, Layout};

/// A field of a test's struct.
const fn field(name: &'static str, offset: u32, len_bytes: u32, dir: Dir, kind: Kind) -> FieldDesc {
    FieldDesc { name, c_name: "", offset, len_bytes, dir, kind }
}

/// What the test takes and answers, the status, and what fills the struct up.
const fn fields(status_at: u32, len_bytes: u32) -> [FieldDesc; 3] {
    [
        field("args", 0, status_at, Dir::InOut, Kind::Words),
        FieldDesc { c_name: "rmStatus", ..field("rm_status", status_at, 4, Dir::Out, Kind::Enum(STATUSES)) },
        field("pad", status_at + 4, len_bytes - status_at - 4, Dir::In, Kind::Reserved),
    ]
}

macro_rules! tests {
    ($($name:literal = $number:literal, $len:literal bytes, status at $status:literal
        $(, since $since:literal)? $(, until $until:literal)?;)*) => {
        /// Every test, in the form of each release.
        pub const TABLE: &[&Desc] = &[$(&Desc {
            request: $number,
            name: $name,
            layout: &Layout { name: concat!($name, "_PARAMS"), len_bytes: $len, fields: &fields($status, $len) },
            out: None,
            embedded: &[],
            since: tests!(@since $($since)?),
            until: tests!(@until $($until)?),
        },)*];
    };
    (@since) => { 1 };
    (@since $since:literal) => { $since };
    (@until) => { None };
    (@until $until:literal) => { Some($until) };
}

#[rustfmt::skip] // A line a form, in the order of the numbers.
tests! {
    "UVM_TEST_GET_GPU_REF_COUNT" = 200, 40 bytes, status at 32, until 549;
    "UVM_TEST_GET_GPU_REF_COUNT" = 200, 32 bytes, status at 24, since 550;
    "UVM_TEST_RNG_SANITY" = 201, 4 bytes, status at 0;
    "UVM_TEST_RANGE_TREE_DIRECTED" = 202, 4 bytes, status at 0;
    "UVM_TEST_RANGE_TREE_RANDOM" = 203, 176 bytes, status at 168;
    "UVM_TEST_VA_RANGE_INFO" = 204, 616 bytes, status at 608, until 549;
    "UVM_TEST_VA_RANGE_INFO" = 204, 4200 bytes, status at 4192, since 550;
    "UVM_TEST_RM_MEM_SANITY" = 205, 4 bytes, status at 0;
    "UVM_TEST_GPU_SEMAPHORE_SANITY" = 206, 4 bytes, status at 0;
    "UVM_TEST_PEER_REF_COUNT" = 207, 48 bytes, status at 32;
    "UVM_TEST_VA_RANGE_SPLIT" = 208, 16 bytes, status at 8;
    "UVM_TEST_VA_RANGE_INJECT_SPLIT_ERROR" = 209, 16 bytes, status at 8;
    "UVM_TEST_PAGE_TREE" = 210, 4 bytes, status at 0;
    "UVM_TEST_CHANGE_PTE_MAPPING" = 211, 32 bytes, status at 28;
    "UVM_TEST_TRACKER_SANITY" = 212, 4 bytes, status at 0;
    "UVM_TEST_PUSH_SANITY" = 213, 8 bytes, status at 4;
    "UVM_TEST_CHANNEL_SANITY" = 214, 4 bytes, status at 0;
    "UVM_TEST_CHANNEL_STRESS" = 215, 24 bytes, status at 20, until 549;
    "UVM_TEST_CHANNEL_STRESS" = 215, 28 bytes, status at 24, since 550;
    "UVM_TEST_CE_SANITY" = 216, 8 bytes, status at 4;
    "UVM_TEST_VA_BLOCK_INFO" = 217, 32 bytes, status at 24;
    "UVM_TEST_LOCK_SANITY" = 218, 4 bytes, status at 0;
    "UVM_TEST_PERF_UTILS_SANITY" = 219, 4 bytes, status at 0;
    "UVM_TEST_KVMALLOC" = 220, 4 bytes, status at 0;
    "UVM_TEST_PMM_QUERY" = 221, 40 bytes, status at 32;
    "UVM_TEST_PMM_CHECK_LEAK" = 222, 48 bytes, status at 40;
    "UVM_TEST_PERF_EVENTS_SANITY" = 223, 4 bytes, status at 0;
    "UVM_TEST_PERF_MODULE_SANITY" = 224, 16 bytes, status at 12;
    "UVM_TEST_RANGE_ALLOCATOR_SANITY" = 225, 16 bytes, status at 12;
    "UVM_TEST_GET_RM_PTES" = 226, 48 bytes, status at 40;
    "UVM_TEST_FAULT_BUFFER_FLUSH" = 227, 16 bytes, status at 8;
    "UVM_TEST_INJECT_TOOLS_EVENT" = 228, 88 bytes, status at 80, since 550, until 569;
    "UVM_TEST_INJECT_TOOLS_EVENT" = 228, 72 bytes, status at 68;
    "UVM_TEST_INCREMENT_TOOLS_COUNTER" = 229, 40 bytes, status at 32;
    "UVM_TEST_MEM_SANITY" = 230, 4 bytes, status at 0;
    "UVM_TEST_MAKE_CHANNEL_STOPS_IMMEDIATE" = 232, 4 bytes, status at 0;
    "UVM_TEST_VA_BLOCK_INJECT_ERROR" = 233, 32 bytes, status at 28, until 549;
    "UVM_TEST_VA_BLOCK_INJECT_ERROR" = 233, 40 bytes, status at 36, since 550, until 569;
    "UVM_TEST_VA_BLOCK_INJECT_ERROR" = 233, 48 bytes, status at 40, since 570;
    "UVM_TEST_PEER_IDENTITY_MAPPINGS" = 234, 36 bytes, status at 32;
    "UVM_TEST_VA_RESIDENCY_INFO" = 235, 2544 bytes, status at 2540, until 549;
    "UVM_TEST_VA_RESIDENCY_INFO" = 235, 19568 bytes, status at 19564, since 550, until 569;
    "UVM_TEST_VA_RESIDENCY_INFO" = 235, 20856 bytes, status at 20852, since 570;
    "UVM_TEST_PMM_ASYNC_ALLOC" = 236, 28 bytes, status at 24;
    "UVM_TEST_SET_PREFETCH_FILTERING" = 237, 24 bytes, status at 20;
    "UVM_TEST_PMM_SANITY" = 240, 8 bytes, status at 4;
    "UVM_TEST_INVALIDATE_TLB" = 241, 48 bytes, status at 40;
    "UVM_TEST_VA_BLOCK" = 242, 4 bytes, status at 0;
    "UVM_TEST_EVICT_CHUNK" = 243, 64 bytes, status at 56;
    "UVM_TEST_FLUSH_DEFERRED_WORK" = 244, 8 bytes, status at 4;
    "UVM_TEST_NV_KTHREAD_Q" = 245, 4 bytes, status at 0;
    "UVM_TEST_SET_PAGE_PREFETCH_POLICY" = 246, 8 bytes, status at 4;
    "UVM_TEST_RANGE_GROUP_TREE" = 247, 40 bytes, status at 32;
    "UVM_TEST_RANGE_GROUP_RANGE_INFO" = 248, 40 bytes, status at 36;
    "UVM_TEST_RANGE_GROUP_RANGE_COUNT" = 249, 24 bytes, status at 16;
    "UVM_TEST_GET_PREFETCH_FAULTS_REENABLE_LAPSE" = 250, 8 bytes, status at 4;
    "UVM_TEST_SET_PREFETCH_FAULTS_REENABLE_LAPSE" = 251, 8 bytes, status at 4;
    "UVM_TEST_GET_KERNEL_VIRTUAL_ADDRESS" = 252, 16 bytes, status at 8;
    "UVM_TEST_PMA_ALLOC_FREE" = 253, 56 bytes, status at 52, until 569;
    "UVM_TEST_PMA_ALLOC_FREE" = 253, 64 bytes, status at 60, since 570;
    "UVM_TEST_PMM_ALLOC_FREE_ROOT" = 254, 24 bytes, status at 20;
    "UVM_TEST_PMM_INJECT_PMA_EVICT_ERROR" = 255, 24 bytes, status at 20;
    "UVM_TEST_RECONFIGURE_ACCESS_COUNTERS" = 256, 44 bytes, status at 40;
    "UVM_TEST_RESET_ACCESS_COUNTERS" = 257, 36 bytes, status at 32, until 569;
    "UVM_TEST_RESET_ACCESS_COUNTERS" = 257, 32 bytes, status at 28, since 570;
    "UVM_TEST_SET_IGNORE_ACCESS_COUNTERS" = 258, 24 bytes, status at 20;
    "UVM_TEST_CHECK_CHANNEL_VA_SPACE" = 259, 40 bytes, status at 36;
    "UVM_TEST_ENABLE_STATIC_PEER_ACCESS" = 260, 36 bytes, status at 32;
    "UVM_TEST_DISABLE_STATIC_PEER_ACCESS" = 261, 36 bytes, status at 32;
    "UVM_TEST_GET_PAGE_THRASHING_POLICY" = 262, 32 bytes, status at 28;
    "UVM_TEST_SET_PAGE_THRASHING_POLICY" = 263, 24 bytes, status at 16;
    "UVM_TEST_PMM_SYSMEM" = 264, 24 bytes, status at 16, until 569;
    "UVM_TEST_PMM_REVERSE_MAP" = 265, 48 bytes, status at 40, until 594;
    "UVM_TEST_PMM_INDIRECT_PEERS" = 266, 4 bytes, status at 0, until 569;
    "UVM_TEST_VA_SPACE_MM_RETAIN" = 267, 48 bytes, status at 40;
    "UVM_TEST_PMM_CHUNK_WITH_ELEVATED_PAGE" = 269, 4 bytes, status at 0;
    "UVM_TEST_GET_GPU_TIME" = 270, 32 bytes, status at 24;
    "UVM_TEST_ACCESS_COUNTERS_ENABLED_BY_DEFAULT" = 271, 24 bytes, status at 20;
    "UVM_TEST_VA_SPACE_INJECT_ERROR" = 272, 12 bytes, status at 8, until 569;
    "UVM_TEST_VA_SPACE_INJECT_ERROR" = 272, 20 bytes, status at 16, since 570;
    "UVM_TEST_PMM_RELEASE_FREE_ROOT_CHUNKS" = 273, 20 bytes, status at 16;
    "UVM_TEST_DRAIN_REPLAYABLE_FAULTS" = 274, 32 bytes, status at 24;
    "UVM_TEST_PMA_GET_BATCH_SIZE" = 275, 32 bytes, status at 24;
    "UVM_TEST_PMM_QUERY_PMA_STATS" = 276, 72 bytes, status at 64, until 594;
    "UVM_TEST_PMM_QUERY_PMA_STATS" = 276, 120 bytes, status at 112, since 595;
    "UVM_TEST_NUMA_GET_CLOSEST_CPU_NODE_TO_GPU" = 277, 32 bytes, status at 28, until 549;
    "UVM_TEST_NUMA_CHECK_AFFINITY" = 278, 20 bytes, status at 16;
    "UVM_TEST_VA_SPACE_ADD_DUMMY_THREAD_CONTEXTS" = 279, 8 bytes, status at 4;
    "UVM_TEST_VA_SPACE_REMOVE_DUMMY_THREAD_CONTEXTS" = 280, 4 bytes, status at 0;
    "UVM_TEST_THREAD_CONTEXT_SANITY" = 281, 8 bytes, status at 4;
    "UVM_TEST_THREAD_CONTEXT_PERF" = 282, 24 bytes, status at 16;
    "UVM_TEST_GET_PAGEABLE_MEM_ACCESS_TYPE" = 283, 8 bytes, status at 4;
    "UVM_TEST_TOOLS_FLUSH_REPLAY_EVENTS" = 284, 20 bytes, status at 16;
    "UVM_TEST_REGISTER_UNLOAD_STATE_BUFFER" = 285, 16 bytes, status at 8;
    "UVM_TEST_RB_TREE_DIRECTED" = 286, 4 bytes, status at 0;
    "UVM_TEST_RB_TREE_RANDOM" = 287, 32 bytes, status at 24;
    "UVM_TEST_HOST_SANITY" = 288, 4 bytes, status at 0;
    "UVM_TEST_VA_SPACE_MM_OR_CURRENT_RETAIN" = 289, 24 bytes, status at 16;
    "UVM_TEST_GET_USER_SPACE_END_ADDRESS" = 290, 16 bytes, status at 8;
    "UVM_TEST_GET_CPU_CHUNK_ALLOC_SIZES" = 291, 8 bytes, status at 4, until 569;
    "UVM_TEST_GET_CPU_CHUNK_ALLOC_SIZES" = 291, 16 bytes, status at 8, since 570;
    "UVM_TEST_VA_RANGE_INJECT_ADD_GPU_VA_SPACE_ERROR" = 293, 16 bytes, status at 8;
    "UVM_TEST_DESTROY_GPU_VA_SPACE_DELAY" = 294, 16 bytes, status at 8;
    "UVM_TEST_SEC2_SANITY" = 295, 4 bytes, status at 0;
    "UVM_TEST_CGROUP_ACCOUNTING_SUPPORTED" = 296, 4 bytes, status at 0;
    "UVM_TEST_SPLIT_INVALIDATE_DELAY" = 298, 16 bytes, status at 8;
    "UVM_TEST_SEC2_CPU_GPU_ROUNDTRIP" = 299, 4 bytes, status at 0;
    "UVM_TEST_CPU_CHUNK_API" = 300, 4 bytes, status at 0;
    "UVM_TEST_FORCE_CPU_TO_CPU_COPY_WITH_CE" = 301, 8 bytes, status at 4, since 550;
    "UVM_TEST_VA_SPACE_ALLOW_MOVABLE_ALLOCATIONS" = 302, 8 bytes, status at 4, since 550;
    "UVM_TEST_SKIP_MIGRATE_VMA" = 303, 8 bytes, status at 4;
    "UVM_TEST_INJECT_TOOLS_EVENT_V2" = 304, 80 bytes, status at 76, since 570;
    "UVM_TEST_SET_P2P_SUSPENDED" = 305, 24 bytes, status at 20, since 570;
    "UVM_TEST_INJECT_NVLINK_ERROR" = 306, 24 bytes, status at 20, since 570;
    "UVM_TEST_FILE_INITIALIZE" = 307, 4 bytes, status at 0, since 580;
    "UVM_TEST_FILE_UNMAP" = 308, 24 bytes, status at 16, since 580;
    "UVM_TEST_QUERY_ACCESS_COUNTERS" = 309, 28 bytes, status at 24, since 570;
    "UVM_TEST_VA_BLOCK_DISCARD_STATUS" = 310, 16 bytes, status at 12, since 580;
    "UVM_TEST_VA_BLOCK_DISCARD_CHECK_PMM_STATE" = 311, 32 bytes, status at 28, since 580;
    "UVM_TEST_DUMP_ACCESS_BITS" = 312, 56 bytes, status at 48, since 595;
    "UVM_TEST_DEAD_CHANNEL" = 313, 32 bytes, status at 28, since 595;
    "UVM_TEST_SET_NON_REPLAYABLE_DELAY" = 314, 24 bytes, status at 20, since 595;
}

/// The form of a test that a release has.
#[must_use]
pub fn form(number: u32, major: u32) -> Option<&'static Desc> {
    let valid = |d: &&&Desc| d.request == number && d.since <= major && d.until.is_none_or(|last| major <= last);
    TABLE.iter().find(valid).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_release_has_its_tests_once() {
        // As many as its header defines.
        for (major, count) in [(535, 96), (550, 97), (570, 99), (580, 103), (595, 105)] {
            let forms: Vec<&Desc> = (200..400).filter_map(|number| form(number, major)).collect();
            assert_eq!(forms.len(), count, "{major}");
        }
        assert_eq!(TABLE.iter().map(|d| d.layout.len_bytes).max(), Some(20856));
    }
}
