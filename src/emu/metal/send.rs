//! The entry of messages, and the table of classes and their methods.
//!
//! `msg_send` is what the runtime's function of the same name is: it leaves all argument registers and the stack as
//! they are and jumps to the method, so arguments and results follow the platform's C calling convention whatever their
//! types. To nil it answers zeros.

use crate::encode::{Bool, Method, Sel};
use crate::machine::{Config, FaultKind, Machine};
use crate::object::{self, Class, Id};
use crate::{archive, buffer, command, compile, device, encoder, event, foundation, indirect, queue};
use doorbell_ioctl::port::objc::{self, Functions, Objc};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The functions that a program links against on a Mac.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// `objc_msgSend`: to be called as a function of the message's own type.
    pub msg_send: unsafe extern "C" fn(),
    /// `sel_registerName`.
    pub sel_register_name: unsafe extern "C" fn(*const c_char) -> u64,
    /// `objc_getClass`.
    pub get_class: unsafe extern "C" fn(*const c_char) -> u64,
    /// `objc_autoreleasePoolPush`.
    pub pool_push: extern "C" fn() -> u64,
    /// `objc_autoreleasePoolPop`.
    pub pool_pop: extern "C" fn(u64),
    /// `MTLCreateSystemDefaultDevice`.
    pub create_system_default_device: extern "C" fn() -> u64,
    /// `MTLCopyAllDevices`.
    pub copy_all_devices: extern "C" fn() -> u64,
}

impl Table {
    /// With devices of the machine that the calling thread has entered.
    #[must_use]
    pub fn of_thread() -> Table {
        Self::with(device_of_thread, devices_of_thread)
    }

    /// With a device of a machine of its own each time, whose family is that of Apple's chips (5 to 9), 0 for none. A
    /// mistake of the program ends the process.
    #[must_use]
    pub fn of_family(family: u32) -> Option<Table> {
        Some(match family {
            0 => Self::with(device_of_family::<0>, devices_of_family::<0>),
            5 => Self::with(device_of_family::<5>, devices_of_family::<5>),
            7 => Self::with(device_of_family::<7>, devices_of_family::<7>),
            8 => Self::with(device_of_family::<8>, devices_of_family::<8>),
            9 => Self::with(device_of_family::<9>, devices_of_family::<9>),
            _ => return None,
        })
    }

    fn with(create: extern "C" fn() -> u64, copy_all: extern "C" fn() -> u64) -> Table {
        Table {
            msg_send,
            sel_register_name,
            get_class,
            pool_push: object::push_pool_entry,
            pool_pop: object::pop_pool_entry,
            create_system_default_device: create,
            copy_all_devices: copy_all,
        }
    }

    /// The table as devices take it.
    #[must_use]
    pub fn objc(&self) -> Objc {
        // SAFETY: pointers are integers of their size in every register; `Id`, `Sel` and pools are `u64` here. The
        // functions are this crate's stand-ins for the system's.
        unsafe {
            Objc::new(Functions {
                msg_send: self.msg_send,
                sel_register_name: std::mem::transmute::<
                    unsafe extern "C" fn(*const c_char) -> u64,
                    unsafe extern "C" fn(*const c_char) -> objc::Sel,
                >(self.sel_register_name),
                get_class: std::mem::transmute::<
                    unsafe extern "C" fn(*const c_char) -> u64,
                    unsafe extern "C" fn(*const c_char) -> objc::Id,
                >(self.get_class),
                pool_push: std::mem::transmute::<extern "C" fn() -> u64, unsafe extern "C" fn() -> *mut c_void>(
                    self.pool_push,
                ),
                pool_pop: std::mem::transmute::<extern "C" fn(u64), unsafe extern "C" fn(*mut c_void)>(self.pool_pop),
                create_system_default_device: std::mem::transmute::<
                    extern "C" fn() -> u64,
                    unsafe extern "C" fn() -> objc::Id,
                >(self.create_system_default_device),
                copy_all_devices: std::mem::transmute::<extern "C" fn() -> u64, unsafe extern "C" fn() -> objc::Id>(
                    self.copy_all_devices,
                ),
            })
        }
    }

    /// The entry of messages as a function of one's own type.
    ///
    /// # Panics
    /// If `F` is no function's type.
    #[must_use]
    pub fn message<F: Copy>(&self) -> F {
        // PANIC: a wrong type in a test; nothing else calls this.
        assert_eq!(size_of::<F>(), size_of::<usize>(), "a function's type");
        let entry = self.msg_send;
        // SAFETY: `F` has a pointer's size; the caller names the type of the method that will answer.
        unsafe { std::mem::transmute_copy(&entry) }
    }
}

extern "C" fn device_of_thread() -> u64 {
    device::create(&Machine::of_thread(), 0).0
}

extern "C" fn devices_of_thread() -> u64 {
    foundation::array_of_devices(&Machine::of_thread()).0
}

fn machine_of_family(family: u32) -> Arc<Machine> {
    let name = if family == 0 { "Software GPU of another make".into() } else { format!("Software Apple{family}") };
    let host_threads = std::thread::available_parallelism().map_or(1, usize::from);
    Machine::new(Config { family, name, strict: true, host_threads, gpus: SOFTWARE_GPUS, ..Config::default() })
}

/// GPUs of a machine that a table makes.
const SOFTWARE_GPUS: u32 = 4;

extern "C" fn device_of_family<const FAMILY: u32>() -> u64 {
    device::create(&machine_of_family(FAMILY), 0).0
}

extern "C" fn devices_of_family<const FAMILY: u32>() -> u64 {
    foundation::array_of_devices(&machine_of_family(FAMILY)).0
}

/// Names of selectors; a selector is 16 times its number, from 1 on.
#[derive(Default)]
struct Selectors {
    numbers: HashMap<String, u64>,
    names: Vec<Arc<str>>,
}

static SELECTORS: LazyLock<RwLock<Selectors>> = LazyLock::new(RwLock::default);

/// The selector of a name.
#[must_use]
pub fn sel(name: &str) -> u64 {
    let mut all = SELECTORS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.numbers.get(name) {
        return *known;
    }
    all.names.push(name.into());
    let number = all.names.len() as u64 * 16;
    all.numbers.insert(name.into(), number);
    number
}

fn name_of(sel: u64) -> Arc<str> {
    let all = SELECTORS.read().unwrap_or_else(PoisonError::into_inner);
    let at = usize::try_from(sel / 16).unwrap_or(0).checked_sub(1);
    at.and_then(|at| all.names.get(at)).map_or_else(|| "(no selector)".into(), Arc::clone)
}

/// # Safety
/// `name` is a C string.
unsafe extern "C" fn sel_register_name(name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    sel(&unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

/// # Safety
/// `name` is a C string.
unsafe extern "C" fn get_class(name: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    Class::ALL.iter().find(|c| c.name() == name).map_or(0, |c| c.id().0)
}

/// A method of a class, or of the class object itself.
struct Entry {
    class: Class,
    of_class: bool,
    selector: &'static str,
    encoding: String,
    address: usize,
}

/// Collects the methods of all classes.
#[derive(Default)]
pub(crate) struct Methods(Vec<Entry>);

impl Methods {
    /// A method of objects.
    pub(crate) fn on<M: Method>(&mut self, class: Class, selector: &'static str, method: M) {
        self.add(class, false, selector, method);
    }

    /// A method of the class.
    pub(crate) fn on_class<M: Method>(&mut self, class: Class, selector: &'static str, method: M) {
        self.add(class, true, selector, method);
    }

    fn add<M: Method>(&mut self, class: Class, of_class: bool, selector: &'static str, method: M) {
        let (encoding, address) = (method.encoding(), method.address());
        self.0.push(Entry { class, of_class, selector, encoding, address });
    }
}

type Addresses = HashMap<(Class, bool, u64), usize>;

static METHODS: LazyLock<(Addresses, Vec<Entry>)> = LazyLock::new(|| {
    let mut all = Methods::default();
    foundation::methods(&mut all);
    device::methods(&mut all);
    compile::methods(&mut all);
    buffer::methods(&mut all);
    event::methods(&mut all);
    queue::methods(&mut all);
    command::methods(&mut all);
    encoder::methods(&mut all);
    indirect::methods(&mut all);
    archive::methods(&mut all);
    for class in Class::ALL {
        all.on(*class, "retain", retain as extern "C" fn(_, _) -> _);
        all.on(*class, "release", release as extern "C" fn(_, _));
        all.on(*class, "respondsToSelector:", responds as extern "C" fn(_, _, _) -> _);
    }
    let addresses = all.0.iter().map(|e| ((e.class, e.of_class, sel(e.selector)), e.address)).collect();
    (addresses, all.0)
});

/// One method, for comparison with a program's own list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The class, or the protocol that it follows.
    pub class: &'static str,
    /// A method of the class itself.
    pub of_class: bool,
    /// The selector.
    pub selector: &'static str,
    /// Types as `method_getTypeEncoding` gives them, without offsets.
    pub encoding: String,
}

/// All methods.
#[must_use]
pub fn rows() -> Vec<Row> {
    let row = |e: &Entry| Row {
        class: e.class.name(),
        of_class: e.of_class,
        selector: e.selector,
        encoding: e.encoding.clone(),
    };
    METHODS.1.iter().map(row).collect()
}

extern "C" fn retain(this: Id, _: Sel) -> Id {
    object::retain(this)
}

extern "C" fn release(this: Id, _: Sel) {
    object::release(this);
}

extern "C" fn responds(this: Id, _: Sel, to: Sel) -> Bool {
    this.class().is_some_and(|class| METHODS.0.contains_key(&(class, false, to.0))).into()
}

/// What answers where no method does.
extern "C" fn nothing(_: Id, _: Sel) -> u64 {
    0
}

/// The method for a receiver that is not nil.
extern "C" fn find(this: Id, sel: Sel) -> usize {
    let none = nothing as extern "C" fn(Id, Sel) -> u64 as usize;
    let of_class = this.is_class();
    if !of_class && !object::lives(this) {
        object::dead(this, &name_of(sel.0));
        return none;
    }
    let Some(class) = this.class() else { return none };
    METHODS.0.get(&(class, of_class, sel.0)).copied().unwrap_or_else(|| {
        let (sign, name) = (if of_class { '+' } else { '-' }, name_of(sel.0));
        let text = format!("{sign}[{} {name}] is no message", class.name());
        object::machine_of(this).fault(FaultKind::UnknownSelector, text);
        none
    })
}

/// The entry of messages.
///
/// # Safety
/// It is called as a function of the type of the method that answers: receiver, selector, arguments.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn msg_send() {
    std::arch::naked_asm!(
        "test rdi, rdi",
        "jz 2f",
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "movups [rsp + 64], xmm0",
        "movups [rsp + 80], xmm1",
        "movups [rsp + 96], xmm2",
        "movups [rsp + 112], xmm3",
        "movups [rsp + 128], xmm4",
        "movups [rsp + 144], xmm5",
        "movups [rsp + 160], xmm6",
        "movups [rsp + 176], xmm7",
        "call {find}",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "movups xmm0, [rsp + 64]",
        "movups xmm1, [rsp + 80]",
        "movups xmm2, [rsp + 96]",
        "movups xmm3, [rsp + 112]",
        "movups xmm4, [rsp + 128]",
        "movups xmm5, [rsp + 144]",
        "movups xmm6, [rsp + 160]",
        "movups xmm7, [rsp + 176]",
        "leave",
        "jmp r11",
        "2:",
        "xor eax, eax",
        "xor edx, edx",
        "xorps xmm0, xmm0",
        "xorps xmm1, xmm1",
        "ret",
        find = sym find,
    )
}

/// The entry of messages.
///
/// # Safety
/// As for x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn msg_send() {
    std::arch::naked_asm!(
        "cbz x0, 2f",
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "sub sp, sp, #208",
        "stp x0, x1, [sp]",
        "stp x2, x3, [sp, #16]",
        "stp x4, x5, [sp, #32]",
        "stp x6, x7, [sp, #48]",
        "str x8, [sp, #64]",
        "stp q0, q1, [sp, #80]",
        "stp q2, q3, [sp, #112]",
        "stp q4, q5, [sp, #144]",
        "stp q6, q7, [sp, #176]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp]",
        "ldp x2, x3, [sp, #16]",
        "ldp x4, x5, [sp, #32]",
        "ldp x6, x7, [sp, #48]",
        "ldr x8, [sp, #64]",
        "ldp q0, q1, [sp, #80]",
        "ldp q2, q3, [sp, #112]",
        "ldp q4, q5, [sp, #144]",
        "ldp q6, q7, [sp, #176]",
        "add sp, sp, #208",
        "ldp x29, x30, [sp], #16",
        "br x16",
        "2:",
        "mov x1, #0",
        "movi d0, #0",
        "movi d1, #0",
        "ret",
        find = sym find,
    )
}
