//! The messages that the device sends: selectors, types and who owns the result, each once.
//!
//! Sources: Apple's headers of Metal and Foundation as `objc2-metal` and `objc2-foundation` render them, and Apple's
//! documentation of each method (docs/metal.md). A result `New` is owned by the caller (`new...`, `copy...`), a result
//! `Lent` is not. Everything that is sent goes through a function that this list makes: a selector that is not in the
//! list does not compile.

use super::ns::{Argument, Block, Class, Encode, ErrorSlot, Keep, Lent, New, NoPlace, Outcome, Owned, Range, Size};
use super::objc::{Id, Runtime, Sel};
use doorbell_ioctl::abi::{Message, Value};
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
    /// The class of a returned object, and of the arguments that are objects; empty for what is none.
    pub result_class: &'static str,
    /// As `result_class`.
    pub argument_classes: &'static [&'static str],
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
                        Some(unsafe { send!(runtime, class, $name, true, $csel, [$($carg: $ct),*], $cr) })
                    }
                )*
            }

            #[allow(dead_code)]
            impl Owned<$class> {
                $(
                    pub(super) fn $fn(&self $(, $arg: $t)*) -> $r {
                        // SAFETY: the object is alive and answers the message with the types of the list.
                        unsafe { send!(self.runtime, self.id, $name, false, $sel, [$($arg: $t),*], $r) }
                    }
                )*
            }
        )*

        /// Sends a recorded message with arguments of this process; the result, or `None` for a message that is not in
        /// the list or has other types.
        ///
        /// # Safety
        /// The objects among the arguments are alive and of the list's classes, and so is the receiver.
        pub(super) unsafe fn play(id: Id, message: &Message, keep: &mut Keep) -> Option<Value> {
            let runtime = keep.runtime;
            let row = (&*message.class, message.of_class, &*message.selector);
            let mut _arguments = message.arguments.iter();
            $( $(
                if row == ($name, true, $csel) {
                    $(let $carg = <<$ct as Argument>::Raw as Encode>::of_value(_arguments.next()?, keep)?;)*
                    // SAFETY: the types are the list's.
                    return Some(unsafe { call!(runtime, id, $csel, [$($carg: $ct),*], $cr) });
                }
            )* $(
                if row == ($name, false, $sel) {
                    $(let $arg = <<$t as Argument>::Raw as Encode>::of_value(_arguments.next()?, keep)?;)*
                    // SAFETY: as above.
                    return Some(unsafe { call!(runtime, id, $sel, [$($arg: $t),*], $r) });
                }
            )* )*
            None
        }

        /// The list.
        pub const ROWS: &[Row] = &[$(
            $( Row {
                class: $name,
                of_class: true,
                selector: $csel,
                codes: &[<<$cr as Outcome>::Raw as Encode>::CODE, "@:" $(, <<$ct as Argument>::Raw as Encode>::CODE)*],
                ownership: <$cr as Outcome>::OWNERSHIP,
                result_class: <$cr as Outcome>::CLASS,
                argument_classes: &[$(<$ct as Argument>::CLASS),*],
            }, )*
            $( Row {
                class: $name,
                of_class: false,
                selector: $sel,
                codes: &[<<$r as Outcome>::Raw as Encode>::CODE, "@:" $(, <<$t as Argument>::Raw as Encode>::CODE)*],
                ownership: <$r as Outcome>::OWNERSHIP,
                result_class: <$r as Outcome>::CLASS,
                argument_classes: &[$(<$t as Argument>::CLASS),*],
            }, )*
        )*];
    };
}

/// Sends a message of the list.
macro_rules! send {
    ($runtime:expr, $id:expr, $class:literal, $of_class:literal, $sel:literal, [$($arg:ident: $t:ty),*], $r:ty) => {{
        const AT: usize = position($sel);
        let runtime: &'static Runtime = $runtime;
        let entry = std::mem::transmute::<
            unsafe extern "C" fn(),
            unsafe extern "C" fn(Id, Sel $(, <$t as Argument>::Raw)*) -> <$r as Outcome>::Raw,
        >(runtime.objc.msg_send);
        let (id, selector) = ($id, runtime.selectors[AT]);
        $(let $arg = Argument::raw($arg);)*
        let raw = match runtime.tap {
            None => entry(id, selector $(, $arg)*),
            Some(_) => {
                let row = Seen { class: $class, of_class: $of_class, selector: $sel };
                let values = || vec![$(Encode::value($arg, runtime)),*];
                let mut sent = None;
                let answer = seen(runtime, id, row, values(), &mut || {
                    let raw = entry(id, selector $(, $arg)*);
                    sent = Some(raw);
                    (Encode::value(raw, runtime), values())
                });
                match (answer, sent) {
                    (None, Some(raw)) => raw,
                    (answer, _) => {
                        let (value, _given) = answer.unwrap_or((Value::Nothing, vec![]));
                        let mut _place = _given.iter();
                        $(if let Some(value) = _place.next() {
                            Encode::give($arg, value);
                        })*
                        instead(runtime, &value)
                    }
                }
            }
        };
        <$r as Outcome>::of(runtime, raw)
    }};
}

/// Sends a message with raw arguments, in nobody's sight.
macro_rules! call {
    ($runtime:expr, $id:expr, $sel:literal, [$($arg:ident: $t:ty),*], $r:ty) => {{
        const AT: usize = position($sel);
        let entry = std::mem::transmute::<
            unsafe extern "C" fn(),
            unsafe extern "C" fn(Id, Sel $(, <$t as Argument>::Raw)*) -> <$r as Outcome>::Raw,
        >($runtime.objc.msg_send);
        entry($id, $runtime.selectors[AT] $(, $arg)*).value($runtime)
    }};
}

/// A message that a tap sees.
struct Seen {
    class: &'static str,
    of_class: bool,
    selector: &'static str,
}

/// Sends a message past the tap. `send` gives the result and the arguments as they are afterwards. `None`: what was
/// sent is the answer; else it is the tap's own, with the arguments as it has changed them.
#[cold]
fn seen(
    runtime: &'static Runtime,
    id: Id,
    row: Seen,
    mut arguments: Vec<Value>,
    send: &mut dyn FnMut() -> (Value, Vec<Value>),
) -> Option<(Value, Vec<Value>)> {
    read_bytes(&mut arguments);
    let Seen { class, of_class, selector } = row;
    let (class, selector) = (class.into(), selector.into());
    let mut message = Message { class, of_class, receiver: id.number(), selector, arguments };
    let mut is_sent = false;
    let mut sends = |message: &mut Message| {
        let (value, after) = send();
        is_sent = true;
        for (old, new) in message.arguments.iter_mut().zip(after) {
            if let Value::Error(_) = new {
                *old = new;
            }
        }
        value
    };
    let Some(tap) = runtime.tap else {
        sends(&mut message);
        return None;
    };
    let passed = tap.pass(&mut message, &mut sends);
    (!is_sent || passed.is_instead).then_some((passed.value, message.arguments))
}

/// The result that a tap has answered; zero for one of another type.
fn instead<R: Encode>(runtime: &'static Runtime, value: &Value) -> R {
    let keep = &mut Keep::new(runtime);
    let zeros = [Value::Nothing, Value::Unsigned(0), Value::Float(0), Value::Size([0; 3]), Value::Range([0; 2])];
    // Text of a tap is not kept: no message is answered so.
    let found = R::of_value(value, keep).filter(|_| !matches!(value, Value::Text(Some(_))));
    found.or_else(|| zeros.iter().find_map(|zero| R::of_value(zero, keep))).unwrap_or_else(|| {
        // PANIC: every type of the list can be made of one of the zeros.
        unreachable!("a result of type {}", R::CODE)
    })
}

/// Reads the bytes of arguments that are read only and as many as the next argument says.
fn read_bytes(values: &mut [Value]) {
    for at in 1..values.len() {
        let [Value::Pointer(from), Value::Unsigned(len)] = &values[at - 1..=at] else { continue };
        let (from, len) = (*from, usize::try_from(*len).unwrap_or(0));
        // Memory that is used in place is no argument that is read.
        if from == 0 || len > MOST_BYTES {
            continue;
        }
        let from: *const u8 = std::ptr::with_exposed_provenance(usize::try_from(from).unwrap_or(0));
        // SAFETY: the message has these bytes as an argument, as many as it says.
        values[at - 1] = Value::Bytes(unsafe { std::slice::from_raw_parts(from, len) }.to_vec());
    }
}

/// Most bytes that an argument points at: `setBytes:length:atIndex:` takes 4 KiB.
const MOST_BYTES: usize = 4 << 10;

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

    /// The place of a file.
    NsUrl "NSURL" {
        class of_file "fileURLWithPath:" (path: &Owned<NsString>) -> Lent<NsUrl>;
    } {}

    /// A list of objects.
    NsArray "NSArray" {
        class with_object "arrayWithObject:" (object: &Owned<Archive>) -> Lent<NsArray>;
    } {
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
        new_library_from "newLibraryWithURL:error:" (url: &Owned<NsUrl>, error: &mut ErrorSlot) -> New<Library>;
        new_archive "newBinaryArchiveWithDescriptor:error:"
            (descriptor: &Owned<ArchiveDescriptor>, error: &mut ErrorSlot) -> New<Archive>;
        new_pipeline "newComputePipelineStateWithFunction:error:"
            (function: &Owned<Function>, error: &mut ErrorSlot) -> New<Pipeline>;
        new_pipeline_with "newComputePipelineStateWithDescriptor:options:reflection:error:"
            (descriptor: &Owned<PipelineDescriptor>, options: u64, reflection: NoPlace, error: &mut ErrorSlot)
            -> New<Pipeline>;
        new_indirect_buffer "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:"
            (descriptor: &Owned<IndirectDescriptor>, most: u64, options: u64) -> New<IndirectBuffer>;
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

    /// How a pipeline is made.
    PipelineDescriptor "MTLComputePipelineDescriptor" {
        class create "new" () -> New<PipelineDescriptor>;
    } {
        set_function "setComputeFunction:" (function: Option<&Owned<Function>>) -> ();
        set_indirect "setSupportIndirectCommandBuffers:" (supported: bool) -> ();
        set_archives "setBinaryArchives:" (archives: Option<&Owned<NsArray>>) -> ();
    }

    /// From which file an archive is made.
    ArchiveDescriptor "MTLBinaryArchiveDescriptor" {
        class create "new" () -> New<ArchiveDescriptor>;
    } {
        set_url "setUrl:" (url: Option<&Owned<NsUrl>>) -> ();
    }

    /// Pipelines that are kept in a file.
    Archive "MTLBinaryArchive" {} {
        add "addComputePipelineFunctionsWithDescriptor:error:"
            (descriptor: &Owned<PipelineDescriptor>, error: &mut ErrorSlot) -> bool;
        serialize "serializeToURL:error:" (url: &Owned<NsUrl>, error: &mut ErrorSlot) -> bool;
    }

    /// How an indirect command buffer is made.
    IndirectDescriptor "MTLIndirectCommandBufferDescriptor" {
        class create "new" () -> New<IndirectDescriptor>;
    } {
        set_command_types "setCommandTypes:" (types: u64) -> ();
        set_inherit_buffers "setInheritBuffers:" (inherit: bool) -> ();
        set_inherit_pipeline "setInheritPipelineState:" (inherit: bool) -> ();
        set_max_buffers "setMaxKernelBufferBindCount:" (most: u64) -> ();
    }

    /// Commands that are encoded once.
    IndirectBuffer "MTLIndirectCommandBuffer" {} {
        command_at "indirectComputeCommandAtIndex:" (index: u64) -> Lent<IndirectCommand>;
    }

    /// One of them.
    IndirectCommand "MTLIndirectComputeCommand" {} {
        set_pipeline "setComputePipelineState:" (pipeline: &Owned<Pipeline>) -> ();
        set_buffer "setKernelBuffer:offset:atIndex:" (buffer: &Owned<Buffer>, offset: u64, slot: u64) -> ();
        dispatch "concurrentDispatchThreadgroups:threadsPerThreadgroup:" (groups: Size, threads: Size) -> ();
        set_barrier "setBarrier" () -> ();
    }

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
        use_resource "useResource:usage:" (resource: &Owned<Buffer>, usage: u64) -> ();
        execute "executeCommandsInBuffer:withRange:" (commands: &Owned<IndirectBuffer>, range: Range) -> ();
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

/// The name of a selector of the list; empty for another.
pub(super) fn name_of(runtime: &Runtime, selector: Sel) -> &'static str {
    let at = runtime.selectors.iter().position(|known| *known == selector);
    let name = |at: usize| COMMON.get(at).copied().or_else(|| Some(ROWS.get(at - COMMON.len())?.selector));
    at.and_then(name).unwrap_or_default()
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
    unsafe { send!(runtime, id, "NSObject", false, "retain", [], Same) }.0
}

/// Takes a reference away.
///
/// # Safety
/// The caller has one, and does not use it again.
pub(super) unsafe fn release(runtime: &'static Runtime, id: Id) {
    // SAFETY: every object answers it.
    unsafe { send!(runtime, id, "NSObject", false, "release", [], ()) }
}

impl Owned<CompileOptions> {
    /// Whether the system knows `setMathMode:` (from macOS 15 on); an unknown message would end the process.
    pub(super) fn has_math_mode(&self) -> bool {
        const AT: usize = position("setMathMode:");
        self.responds_to(self.runtime.selectors[AT])
    }
}
