//! Objects: numbers instead of pointers, counted references, pools.

use crate::machine::{FaultKind, Machine};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// An object's pointer: `serial << 12 | (class + 1) << 4`; serial 0 is the class itself, 0 is nil. No serial is given
/// twice.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub u64);

impl Id {
    pub(crate) const NIL: Id = Id(0);

    pub(crate) fn is_nil(self) -> bool {
        self == Self::NIL
    }

    /// Its class, if the number can be an object's.
    pub(crate) fn class(self) -> Option<Class> {
        let number = usize::try_from((self.0 >> 4) & 0xff).ok()?.checked_sub(1)?;
        Class::ALL.get(number).copied().filter(|_| self.0 & 15 == 0)
    }

    pub(crate) fn is_class(self) -> bool {
        self.0 >> 12 == 0 && self.class().is_some()
    }
}

/// The classes. Their names are the protocols' that the framework's own classes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::upper_case_acronyms)] // Apple's names
pub(crate) enum Class {
    NSString,
    NSError,
    NSArray,
    MTLCompileOptions,
    MTLDevice,
    MTLCommandQueue,
    MTLCommandBuffer,
    MTLComputeCommandEncoder,
    MTLBlitCommandEncoder,
    MTLBuffer,
    MTLLibrary,
    MTLFunction,
    MTLComputePipelineState,
    MTLSharedEvent,
    MTLComputePipelineDescriptor,
    MTLIndirectCommandBufferDescriptor,
    MTLIndirectCommandBuffer,
    MTLIndirectComputeCommand,
    NSURL,
    MTLBinaryArchiveDescriptor,
    MTLBinaryArchive,
}

impl Class {
    pub(crate) const ALL: &[Class] = &[
        Class::NSString,
        Class::NSError,
        Class::NSArray,
        Class::MTLCompileOptions,
        Class::MTLDevice,
        Class::MTLCommandQueue,
        Class::MTLCommandBuffer,
        Class::MTLComputeCommandEncoder,
        Class::MTLBlitCommandEncoder,
        Class::MTLBuffer,
        Class::MTLLibrary,
        Class::MTLFunction,
        Class::MTLComputePipelineState,
        Class::MTLSharedEvent,
        Class::MTLComputePipelineDescriptor,
        Class::MTLIndirectCommandBufferDescriptor,
        Class::MTLIndirectCommandBuffer,
        Class::MTLIndirectComputeCommand,
        Class::NSURL,
        Class::MTLBinaryArchiveDescriptor,
        Class::MTLBinaryArchive,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::NSString => "NSString",
            Class::NSError => "NSError",
            Class::NSArray => "NSArray",
            Class::MTLCompileOptions => "MTLCompileOptions",
            Class::MTLDevice => "MTLDevice",
            Class::MTLCommandQueue => "MTLCommandQueue",
            Class::MTLCommandBuffer => "MTLCommandBuffer",
            Class::MTLComputeCommandEncoder => "MTLComputeCommandEncoder",
            Class::MTLBlitCommandEncoder => "MTLBlitCommandEncoder",
            Class::MTLBuffer => "MTLBuffer",
            Class::MTLLibrary => "MTLLibrary",
            Class::MTLFunction => "MTLFunction",
            Class::MTLComputePipelineState => "MTLComputePipelineState",
            Class::MTLSharedEvent => "MTLSharedEvent",
            Class::MTLComputePipelineDescriptor => "MTLComputePipelineDescriptor",
            Class::MTLIndirectCommandBufferDescriptor => "MTLIndirectCommandBufferDescriptor",
            Class::MTLIndirectCommandBuffer => "MTLIndirectCommandBuffer",
            Class::MTLIndirectComputeCommand => "MTLIndirectComputeCommand",
            Class::NSURL => "NSURL",
            Class::MTLBinaryArchiveDescriptor => "MTLBinaryArchiveDescriptor",
            Class::MTLBinaryArchive => "MTLBinaryArchive",
        }
    }

    /// The class as an object.
    pub(crate) fn id(self) -> Id {
        Id((self as u64 + 1) << 4)
    }
}

/// What an object of one class holds.
pub(crate) trait Body: Any + Send + Sync {
    const CLASS: Class;

    /// Called at the last release.
    fn end(&self, _machine: &Machine) {}
}

/// As `Body`, for objects of any class.
trait AnyBody: Any + Send + Sync {
    fn end(&self, machine: &Machine);
}

impl<T: Body> AnyBody for T {
    fn end(&self, machine: &Machine) {
        Body::end(self, machine);
    }
}

struct Object {
    machine: Arc<Machine>,
    count: AtomicU64,
    body: Box<dyn AnyBody>,
}

static OBJECTS: LazyLock<RwLock<HashMap<Id, Arc<Object>>>> = LazyLock::new(RwLock::default);

fn object(id: Id) -> Option<Arc<Object>> {
    OBJECTS.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
}

/// A living object, for as long as a method works on it.
pub(crate) struct Held<T> {
    object: Arc<Object>,
    of: PhantomData<T>,
}

impl<T: Body> Held<T> {
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.object.machine
    }
}

impl<T: Body> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let body: &dyn Any = &*self.object.body;
        // PANIC: `get` made this and looked at the type.
        #[allow(clippy::expect_used)]
        body.downcast_ref().expect("an object of the type")
    }
}

/// A living object of a class.
pub(crate) fn get<T: Body>(id: Id) -> Option<Held<T>> {
    let object = object(id)?;
    let body: &dyn Any = &*object.body;
    body.is::<T>().then(|| Held { object, of: PhantomData })
}

/// As `get`, for an argument: another object, or nil, is a fault.
pub(crate) fn argument<T: Body>(machine: &Machine, what: &str, id: Id) -> Option<Held<T>> {
    let found = get(id);
    if found.is_none() {
        let is = match id.class() {
            _ if id.is_nil() => "nil".into(),
            Some(class) => format!("an object of {} or a dead one", class.name()),
            None => "no object".into(),
        };
        machine.fault(FaultKind::WrongArgument, format!("{what} takes a {}, not {is}", T::CLASS.name()));
    }
    found
}

/// A new object with one reference.
pub(crate) fn create<T: Body>(machine: &Arc<Machine>, body: T) -> Id {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    let id = Id(SERIAL.fetch_add(1, Ordering::Relaxed) << 12 | T::CLASS.id().0);
    let object = Object { machine: Arc::clone(machine), count: AtomicU64::new(1), body: Box::new(body) };
    machine.count(T::CLASS.name(), 1);
    OBJECTS.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(object));
    id
}

/// Adds a reference.
pub(crate) fn retain(id: Id) -> Id {
    if let Some(object) = object(id) {
        object.count.fetch_add(1, Ordering::Relaxed);
    }
    id
}

/// Takes a reference away. The last one's object is dead; what its body holds is released after the table's lock.
pub(crate) fn release(id: Id) {
    let Some(found) = object(id) else { return };
    if found.count.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    OBJECTS.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    found.body.end(&found.machine);
    if let Some(class) = id.class() {
        found.machine.count(class.name(), -1);
    }
}

/// Records a message that nobody answers.
pub(crate) fn dead(id: Id, selector: &str) {
    let class = id.class().map_or("", Class::name);
    let (kind, what) = match id.class() {
        Some(_) => (FaultKind::DeadObject, format!("-[{class} {selector}] was sent to a dead object")),
        None => (FaultKind::NoObject, format!("{selector} was sent to {:#x}, which is no object", id.0)),
    };
    Machine::of_thread().fault(kind, what);
}

/// Whether the object lives.
pub(crate) fn lives(id: Id) -> bool {
    OBJECTS.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
}

/// The machine of a living object.
pub(crate) fn machine_of(id: Id) -> Arc<Machine> {
    object(id).map_or_else(Machine::of_thread, |o| Arc::clone(&o.machine))
}

thread_local! {
    /// Pools of this thread, each with its number and what it will release.
    static POOLS: RefCell<Vec<(u64, Vec<Id>)>> = const { RefCell::new(Vec::new()) };
}

/// Leaves an object's reference to the thread's innermost pool.
pub(crate) fn autorelease(id: Id) -> Id {
    let has_pool = POOLS.with_borrow_mut(|pools| pools.last_mut().map(|(_, all)| all.push(id)).is_some());
    if !has_pool {
        let class = id.class().map_or("", Class::name);
        machine_of(id).fault(FaultKind::NoPool, format!("an object of {class} leaks: the thread has no pool"));
    }
    id
}

/// Begins a pool.
pub(crate) fn push_pool() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    POOLS.with_borrow_mut(|pools| pools.push((number, Vec::new())));
    number
}

/// Ends a pool, and releases what was left to it.
pub(crate) fn pop_pool(number: u64) {
    let found = POOLS.with_borrow_mut(|pools| {
        let at = pools.iter().position(|(n, _)| *n == number)?;
        let last = at + 1 == pools.len();
        Some((last, pools.split_off(at)))
    });
    match &found {
        Some((true, _)) => {}
        Some((false, _)) => Machine::of_thread().fault(FaultKind::PoolOrder, "a pool ended before its inner ones"),
        None => Machine::of_thread().fault(FaultKind::PoolOrder, "a pool ended that this thread has not"),
    }
    found.into_iter().flat_map(|(_, pools)| pools).flat_map(|(_, all)| all).for_each(release);
}

/// `objc_autoreleasePoolPush`.
pub(crate) extern "C" fn push_pool_entry() -> u64 {
    push_pool()
}

/// `objc_autoreleasePoolPop`.
pub(crate) extern "C" fn pop_pool_entry(number: u64) {
    pop_pool(number);
}
