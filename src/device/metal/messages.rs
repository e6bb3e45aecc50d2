//! The messages that the device sends: selectors, types and who owns the result, each once.
//!
//! Sources: Apple's headers of Metal and Foundation as `objc2-metal` and `objc2-foundation` render them, and Apple's
//! documentation of each method (docs/metal.md). A result `New` is owned by the caller (`new...`, `copy...`), a result
//! `Lent` is not. Everything that is sent goes through a function that this list makes: a selector that is not in the
//! list does not compile.

use super::ns::{Argument, Block, Class, Encode, ErrorSlot, Lent, New, Outcome, Owned, Range, Size};
use super::objc::{Id, Runtime, Sel};
use std::ffi::CString;

/// One message of the list.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Class or protocol.
    pub class: &'static str,
    /// A message to the class itself.
    pub of_class: bool,
    /// The selector.
    pub selector: &'static str,
    /// Codes of result and arguments.
    pub codes: &'static [&'static str],
    /// Who owns a returned object: `+1` the caller, `+0` somebody else.
    pub ownership: &'static str,
}

impl Row {
    /// The types as the runtime's `method_getTypeEncoding` gives them, without offsets.
    #[must_use]
    pub fn encoding(&self) -> String {
        self.codes.concat()
    }
}

macro_rules! messages {
    ($(
        $(#[$doc:meta])* $class:ident $name:literal
        { $( class $cfn:ident $csel:literal ($($carg:ident: $ct:ty),*) -> $cr:ty; )* }
        { $( $fn:ident $sel:literal ($($arg:ident: $t:ty),*) -> $r:ty; )* }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $class {}

            impl Class for $class {
                const NAME: &'static str = $name;
            }

            #[allow(dead_code)]
            impl $class {
                $(
                    /// `None` where the class is not loaded.
                    pub(super) fn $cfn(runtime: &'static Runtime $(, $carg: $ct)*) -> Option<$cr> {
                        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        // SAFETY: the name is a C string.
                        let class = unsafe { (runtime.objc.get_class)(NAME.as_ptr()) };
                        if class.is_nil() {
                            return None;
                        }
                        // SAFETY: the class answers the message with the types of the list.
                        Some(unsafe { send!(runtime, class, $csel, [$($carg: $ct),*], $cr) })
                    }
                )*
            }

            #[allow(dead_code)]
            impl Owned<$class> {
                $(
                    pub(super) fn $fn(&self $(, $arg: $t)*) -> $r {
                        // SAFETY: the object is alive and answers the message with the types of the list.
                        unsafe { send!(self.runtime, self.id, $sel, [$($arg: $t),*], $r) }
                    }
                )*
            }
        )*

        /// The list.
        pub const ROWS: &[Row] = &[$(
            $( Row {
                class: $name,
                of_class: true,
                selector: $csel,
                codes: &[<<$cr as Outcome>::Raw as Encode>::CODE, "@:" $(, <<$ct as Argument>::Raw as Encode>::CODE)*],
                ownership: <$cr as Outcome>::OWNERSHIP,
            }, )*
            $( Row {
                class: $name,
                of_class: false,
                selector: $sel,
                codes: &[<<$r as Outcome>::Raw as Encode>::CODE, "@:" $(, <<$t as Argument>::Raw as Encode>::CODE)*],
                ownership: <$r as Outcome>::OWNERSHIP,
            }, )*
        )*];
    };
}

/// Sends a message of the list.
macro_rules! send {
    ($runtime:expr, $id:expr, $sel:literal, [$($arg:ident: $t:ty),*], $r:ty) => {{
        const AT: usize = position($sel);
        let entry = std::mem::transmute::<
            unsafe extern "C" fn(),
            unsafe extern "C" fn(Id, Sel $(, <$t as Argument>::Raw)*) -> <$r as Outcome>::Raw,
        >($runtime.objc.msg_send);
        let raw = entry($id, $runtime.selectors[AT] $(, Argument::raw($arg))*);
        <$r as Outcome>::of($runtime, raw)
    }};
}

messages! {
    /// Any object.
    Any "NSObject" {} {
        responds_to "respondsToSelector:" (selector: Sel) -> bool;
    }

    /// A string.
    NsString "NSString" {
        class with_utf8 "stringWithUTF8String:" (text: *const i8) -> Lent<NsString>;
    } {
        utf8 "UTF8String" () -> *const i8;
    }

    /// An error.
    NsError "NSError" {} {
        domain "domain" () -> Lent<NsString>;
        code "code" () -> i64;
        localized_description "localizedDescription" () -> Lent<NsString>;
    }

    /// A list of objects.
    NsArray "NSArray" {} {
        count "count" () -> u64;
        object_at "objectAtIndex:" (index: u64) -> Lent<Any>;
    }

    /// A GPU.
    Gpu "MTLDevice" {} {
        name "name" () -> Lent<NsString>;
        registry_id "registryID" () -> u64;
        max_threadgroup_memory "maxThreadgroupMemoryLength" () -> u64;
        max_buffer_length "maxBufferLength" () -> u64;
        recommended_working_set "recommendedMaxWorkingSetSize" () -> u64;
        current_allocated "currentAllocatedSize" () -> u64;
        has_unified_memory "hasUnifiedMemory" () -> bool;
        supports_family "supportsFamily:" (family: i64) -> bool;
        new_command_queue "newCommandQueueWithMaxCommandBufferCount:" (most: u64) -> New<CommandQueue>;
        new_buffer "newBufferWithLength:options:" (length: u64, options: u64) -> New<Buffer>;
        new_buffer_in_place "newBufferWithBytesNoCopy:length:options:deallocator:"
            (at: *mut u8, length: u64, options: u64, deallocator: Block) -> New<Buffer>;
        new_library "newLibraryWithSource:options:error:"
            (source: &Owned<NsString>, options: Option<&Owned<CompileOptions>>, error: &mut ErrorSlot) -> New<Library>;
        new_pipeline "newComputePipelineStateWithFunction:error:"
            (function: &Owned<Function>, error: &mut ErrorSlot) -> New<Pipeline>;
        new_shared_event "newSharedEvent" () -> New<SharedEvent>;
    }

    /// How a source is compiled.
    CompileOptions "MTLCompileOptions" {
        class create "new" () -> New<CompileOptions>;
    } {
        set_language_version "setLanguageVersion:" (version: u64) -> ();
        set_fast_math "setFastMathEnabled:" (enabled: bool) -> ();
        set_math_mode "setMathMode:" (mode: i64) -> ();
        responds_to "respondsToSelector:" (selector: Sel) -> bool;
    }

    /// Compiled functions.
    Library "MTLLibrary" {} {
        new_function "newFunctionWithName:" (name: &Owned<NsString>) -> New<Function>;
        function_names "functionNames" () -> Lent<NsArray>;
    }

    /// A function of a library.
    Function "MTLFunction" {} {}

    /// A kernel that can be launched.
    Pipeline "MTLComputePipelineState" {} {
        max_total_threads "maxTotalThreadsPerThreadgroup" () -> u64;
        execution_width "threadExecutionWidth" () -> u64;
        static_threadgroup_memory "staticThreadgroupMemoryLength" () -> u64;
    }

    /// A queue.
    CommandQueue "MTLCommandQueue" {} {
        command_buffer "commandBuffer" () -> Lent<CommandBuffer>;
    }

    /// A list of commands that is submitted as one.
    CommandBuffer "MTLCommandBuffer" {} {
        compute_encoder "computeCommandEncoder" () -> Lent<ComputeEncoder>;
        blit_encoder "blitCommandEncoder" () -> Lent<BlitEncoder>;
        signal "encodeSignalEvent:value:" (event: &Owned<SharedEvent>, value: u64) -> ();
        wait "encodeWaitForEvent:value:" (event: &Owned<SharedEvent>, value: u64) -> ();
        set_label "setLabel:" (label: &Owned<NsString>) -> ();
        commit "commit" () -> ();
        wait_until_completed "waitUntilCompleted" () -> ();
        status "status" () -> u64;
        error "error" () -> Lent<NsError>;
        gpu_start_time "GPUStartTime" () -> f64;
        gpu_end_time "GPUEndTime" () -> f64;
    }

    /// An encoder of launches.
    ComputeEncoder "MTLComputeCommandEncoder" {} {
        set_pipeline "setComputePipelineState:" (pipeline: &Owned<Pipeline>) -> ();
        set_buffer "setBuffer:offset:atIndex:" (buffer: Option<&Owned<Buffer>>, offset: u64, slot: u64) -> ();
        set_bytes "setBytes:length:atIndex:" (bytes: *const u8, length: u64, slot: u64) -> ();
        set_threadgroup_memory "setThreadgroupMemoryLength:atIndex:" (length: u64, slot: u64) -> ();
        dispatch "dispatchThreadgroups:threadsPerThreadgroup:" (groups: Size, threads: Size) -> ();
        end "endEncoding" () -> ();
    }

    /// An encoder of copies.
    BlitEncoder "MTLBlitCommandEncoder" {} {
        copy "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:"
            (from: &Owned<Buffer>, from_offset: u64, to: &Owned<Buffer>, to_offset: u64, size: u64) -> ();
        fill "fillBuffer:range:value:" (buffer: &Owned<Buffer>, range: Range, value: u8) -> ();
        end "endEncoding" () -> ();
    }

    /// Memory.
    Buffer "MTLBuffer" {} {
        contents "contents" () -> *mut u8;
        length "length" () -> u64;
    }

    /// A counter that GPU and host wait on.
    SharedEvent "MTLSharedEvent" {} {
        signaled_value "signaledValue" () -> u64;
        set_signaled_value "setSignaledValue:" (value: u64) -> ();
        wait_until "waitUntilSignaledValue:timeoutMS:" (value: u64, timeout_ms: u64) -> bool;
    }
}

/// Messages to all objects, in the order in which they stand before the list's.
const COMMON: [&str; 2] = ["retain", "release"];

/// Where a selector stands among those of a runtime. Fails to compile for one that is not in the list.
const fn position(selector: &str) -> usize {
    let mut at = 0;
    while at < COMMON.len() {
        if is_same(COMMON[at], selector) {
            return at;
        }
        at += 1;
    }
    let mut row = 0;
    while !is_same(ROWS[row].selector, selector) {
        row += 1;
    }
    COMMON.len() + row
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The selectors of a runtime, in order.
pub(super) fn selectors() -> Vec<CString> {
    let all = COMMON.iter().copied().chain(ROWS.iter().map(|row| row.selector));
    all.map(|name| CString::new(name).unwrap_or_default()).collect()
}

/// Adds a reference.
///
/// # Safety
/// The object is alive.
pub(super) unsafe fn retain(runtime: &'static Runtime, id: Id) -> Id {
    /// The result is the receiver, not another reference.
    struct Same(Id);
    impl Outcome for Same {
        type Raw = Id;
        unsafe fn of(_: &'static Runtime, raw: Id) -> Self {
            Self(raw)
        }
    }
    // SAFETY: every object answers it.
    unsafe { send!(runtime, id, "retain", [], Same) }.0
}

/// Takes a reference away.
///
/// # Safety
/// The caller has one, and does not use it again.
pub(super) unsafe fn release(runtime: &'static Runtime, id: Id) {
    // SAFETY: every object answers it.
    unsafe { send!(runtime, id, "release", [], ()) }
}

impl Owned<CompileOptions> {
    /// Whether the system knows `setMathMode:` (from macOS 15 on); an unknown message would end the process.
    pub(super) fn has_math_mode(&self) -> bool {
        const AT: usize = position("setMathMode:");
        self.responds_to(self.runtime.selectors[AT])
    }
}
