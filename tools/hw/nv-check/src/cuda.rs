//! CUDA's driver library, loaded if present: the dozen functions that are measured. No header and no library is needed
//! to build this.
//!
//! Source: the CUDA driver API's reference; names with `_v2` are what `cuda.h` makes of the plain ones.
//! Left out: freeing memory and graphs: the process ends after its measurement.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

type Code = c_int;
/// A handle of the library: context, module, function, stream, graph.
type Handle = *mut c_void;
/// CUdeviceptr.
pub type Address = u64;

/// CU_STREAM_CAPTURE_MODE_GLOBAL.
const CAPTURE_GLOBAL: c_int = 0;
/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: c_uint = 1;

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal: fn($($arg:ty),*);)*) => {
        /// The functions, by their addresses.
        struct Functions { $($(#[$doc])* $field: unsafe extern "C" fn($($arg),*) -> Code,)* }

        impl Functions {
            fn find(library: Handle) -> Result<Self, String> {
                Ok(Self { $($field: {
                    let at = symbol(library, $name)?;
                    // SAFETY: the library's function of this name has this signature (CUDA driver API); it stays loaded
                    // for ever.
                    unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($arg),*) -> Code>(at) }
                },)* })
            }
        }
    };
}

functions! {
    init = c"cuInit": fn(c_uint);
    driver_version = c"cuDriverGetVersion": fn(*mut c_int);
    error_name = c"cuGetErrorName": fn(Code, *mut *const c_char);
    device = c"cuDeviceGetByPCIBusId": fn(*mut c_int, *const c_char);
    context = c"cuCtxCreate_v2": fn(*mut Handle, c_uint, c_int);
    synchronize = c"cuStreamSynchronize": fn(Handle);
    load = c"cuModuleLoadData": fn(*mut Handle, *const c_void);
    function = c"cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    stream = c"cuStreamCreate": fn(*mut Handle, c_uint);
    launch = c"cuLaunchKernel": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    begin_capture = c"cuStreamBeginCapture_v2": fn(Handle, c_int);
    end_capture = c"cuStreamEndCapture": fn(Handle, *mut Handle);
    instantiate = c"cuGraphInstantiateWithFlags": fn(*mut Handle, Handle, u64);
    launch_graph = c"cuGraphLaunch": fn(Handle, Handle);
    alloc = c"cuMemAlloc_v2": fn(*mut Address, usize);
    alloc_host = c"cuMemAllocHost_v2": fn(*mut *mut c_void, usize);
    copy_in = c"cuMemcpyHtoDAsync_v2": fn(Address, *const c_void, usize, Handle);
    copy_out = c"cuMemcpyDtoHAsync_v2": fn(*mut c_void, Address, usize, Handle);
    copy = c"cuMemcpyDtoDAsync_v2": fn(Address, Address, usize, Handle);
}

fn symbol(library: Handle, name: &CStr) -> Result<Handle, String> {
    // SAFETY: `library` came from dlopen and is never closed; the name ends with a zero.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    if at.is_null() { Err(format!("CUDA's library has no {}", name.to_string_lossy())) } else { Ok(at) }
}

/// The library.
pub struct Cuda(Functions);

impl Cuda {
    /// # Errors
    /// No such library, or one without these functions.
    pub fn load(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: loading runs the library's own initialisers: the user who names the library trusts it.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(format!("{} cannot be loaded", path.display()));
        }
        Ok(Self(Functions::find(library)?))
    }

    fn check(&self, what: &str, code: Code) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the library stores a pointer to a text of its own, or null.
        let found = unsafe { (self.0.error_name)(code, &raw mut name) };
        let text = if found == 0 && !name.is_null() {
            // SAFETY: the text ends with a zero and is never freed.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "no name".into()
        };
        Err(format!("{what}: {text} ({code})"))
    }

    /// 13000 is 13.0; 0 where it is unknown.
    pub fn driver_version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: one integer is written.
        let reported = unsafe { (self.0.driver_version)(&raw mut version) };
        if reported == 0 { version } else { 0 }
    }

    /// cuInit, a context and a stream on the card at that place.
    ///
    /// # Errors
    /// What the library refused.
    pub fn open(&self, bdf: &str) -> Result<Context<'_>, String> {
        let place = CString::new(bdf).map_err(|e| e.to_string())?;
        let (mut device, mut context, mut stream) = (0, null_mut(), null_mut());
        // SAFETY: no pointers.
        self.check("cuInit", unsafe { (self.0.init)(0) })?;
        // SAFETY: one integer is written; the text ends with a zero.
        self.check("cuDeviceGetByPCIBusId", unsafe { (self.0.device)(&raw mut device, place.as_ptr()) })?;
        // SAFETY: one handle is written; the context becomes this thread's.
        self.check("cuCtxCreate", unsafe { (self.0.context)(&raw mut context, 0, device) })?;
        // SAFETY: one handle is written.
        self.check("cuStreamCreate", unsafe { (self.0.stream)(&raw mut stream, NON_BLOCKING) })?;
        Ok(Context { cuda: self, stream, module: std::cell::Cell::new(null_mut()) })
    }
}

/// A context that is the thread's own, with its stream and the module that was loaded.
pub struct Context<'a> {
    cuda: &'a Cuda,
    stream: Handle,
    module: std::cell::Cell<Handle>,
}

/// Memory of the host that CUDA has pinned.
pub struct Pinned(*mut c_void);

/// A graph ready to be launched.
pub struct Graph(Handle);

impl Context<'_> {
    fn functions(&self) -> &Functions {
        &self.cuda.0
    }

    /// # Errors
    /// What the library refused.
    pub fn load(&self, image: &[u8]) -> Result<(), String> {
        let mut module = null_mut();
        // SAFETY: the image is a whole ELF file or a text that ends with a zero; the library reads no further than its
        // headers give.
        let code = unsafe { (self.functions().load)(&raw mut module, image.as_ptr().cast()) };
        self.cuda.check("cuModuleLoadData", code)?;
        self.module.set(module);
        Ok(())
    }

    /// # Errors
    /// As [`Context::load`].
    pub fn load_text(&self, ptx: &str) -> Result<(), String> {
        self.load(&[ptx.as_bytes(), &[0]].concat())
    }

    /// A launch of one block of a kernel without parameters.
    ///
    /// # Errors
    /// What the library refused.
    pub fn launch(&self, name: &str) -> Result<(), String> {
        let text = CString::new(name).map_err(|e| e.to_string())?;
        let mut function = null_mut();
        // SAFETY: one handle is written; module and text are valid.
        let found = unsafe { (self.functions().function)(&raw mut function, self.module.get(), text.as_ptr()) };
        self.cuda.check("cuModuleGetFunction", found)?;
        let (block, none) = (crate::code::BLOCK, null_mut());
        // SAFETY: the kernel takes no parameters, so that both lists may be null.
        let code = unsafe { (self.functions().launch)(function, 1, 1, 1, block, 1, 1, 0, self.stream, none, none) };
        self.cuda.check("cuLaunchKernel", code)
    }

    /// # Errors
    /// The stream's error.
    pub fn wait(&self) -> Result<(), String> {
        // SAFETY: a valid stream.
        self.cuda.check("cuStreamSynchronize", unsafe { (self.functions().synchronize)(self.stream) })
    }

    /// # Errors
    /// As both.
    pub fn launch_and_wait(&self, name: &str) -> Result<(), String> {
        self.launch(name)?;
        self.wait()
    }

    /// So many launches as a graph.
    ///
    /// # Errors
    /// What the library refused.
    pub fn record(&self, name: &str, count: usize) -> Result<Graph, String> {
        let (f, mut graph, mut ready) = (self.functions(), null_mut(), null_mut());
        // SAFETY: a valid stream.
        self.cuda.check("cuStreamBeginCapture", unsafe { (f.begin_capture)(self.stream, CAPTURE_GLOBAL) })?;
        (0..count).try_for_each(|_| self.launch(name))?;
        // SAFETY: a valid stream; one handle is written.
        self.cuda.check("cuStreamEndCapture", unsafe { (f.end_capture)(self.stream, &raw mut graph) })?;
        // SAFETY: a valid graph; one handle is written.
        self.cuda.check("cuGraphInstantiate", unsafe { (f.instantiate)(&raw mut ready, graph, 0) })?;
        Ok(Graph(ready))
    }

    /// # Errors
    /// What the library refused.
    pub fn replay(&self, graph: &Graph) -> Result<(), String> {
        // SAFETY: valid handles.
        self.cuda.check("cuGraphLaunch", unsafe { (self.functions().launch_graph)(graph.0, self.stream) })
    }

    /// # Errors
    /// No memory.
    pub fn alloc(&self, len: usize) -> Result<Address, String> {
        let mut address = 0;
        // SAFETY: one address is written.
        self.cuda.check("cuMemAlloc", unsafe { (self.functions().alloc)(&raw mut address, len) })?;
        Ok(address)
    }

    /// # Errors
    /// No memory.
    pub fn alloc_host(&self, len: usize) -> Result<Pinned, String> {
        let mut at = null_mut();
        // SAFETY: one pointer is written.
        self.cuda.check("cuMemAllocHost", unsafe { (self.functions().alloc_host)(&raw mut at, len) })?;
        Ok(Pinned(at))
    }

    /// # Errors
    /// What the library refused.
    pub fn copy_in_pinned(&self, dst: Address, src: &Pinned, len: usize) -> Result<(), String> {
        // SAFETY: both were allocated with at least `len` bytes; the copy is waited for.
        self.cuda.check("cuMemcpyHtoD", unsafe { (self.functions().copy_in)(dst, src.0, len, self.stream) })?;
        self.wait()
    }

    /// # Errors
    /// What the library refused.
    pub fn copy_out_pinned(&self, dst: &Pinned, src: Address, len: usize) -> Result<(), String> {
        // SAFETY: as `copy_in_pinned`.
        self.cuda.check("cuMemcpyDtoH", unsafe { (self.functions().copy_out)(dst.0, src, len, self.stream) })?;
        self.wait()
    }

    /// # Errors
    /// What the library refused.
    pub fn copy_in(&self, dst: Address, src: &[u8]) -> Result<(), String> {
        // SAFETY: `dst` has as many bytes as the slice; the copy is waited for.
        let code = unsafe { (self.functions().copy_in)(dst, src.as_ptr().cast(), src.len(), self.stream) };
        self.cuda.check("cuMemcpyHtoD", code)?;
        self.wait()
    }

    /// # Errors
    /// What the library refused.
    pub fn copy_out(&self, dst: &mut [u8], src: Address) -> Result<(), String> {
        // SAFETY: as `copy_in`.
        let code = unsafe { (self.functions().copy_out)(dst.as_mut_ptr().cast(), src, dst.len(), self.stream) };
        self.cuda.check("cuMemcpyDtoH", code)?;
        self.wait()
    }

    /// # Errors
    /// What the library refused.
    pub fn copy(&self, dst: Address, src: Address, len: usize) -> Result<(), String> {
        // SAFETY: both were allocated with at least `len` bytes.
        self.cuda.check("cuMemcpyDtoD", unsafe { (self.functions().copy)(dst, src, len, self.stream) })?;
        self.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_are_none_are_refused_in_words() {
        let refused = |path: &str| Cuda::load(Path::new(path)).err().unwrap();
        assert_eq!(refused("/no/such/libcuda.so"), "/no/such/libcuda.so cannot be loaded");
        assert_eq!(refused("libc.so.6"), "CUDA's library has no cuInit");
    }
}
