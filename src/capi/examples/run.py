"""Runs a package from Python: python3 run.py libdoorbell.so PACKAGE"""
import ctypes as C, sys
class Error(C.Structure):
    _fields_ = [("size", C.c_uint32), ("status", C.c_int32), ("driver_code", C.c_int64), ("text", C.c_char * 488)]

class Port(C.Structure):
    _fields_ = [("name", C.c_char_p), ("max_bytes", C.c_uint64), ("shape", C.c_uint64 * 16), ("rank", C.c_uint32),
                ("element", C.c_uint32)]
lib, error = C.CDLL(sys.argv[1]), Error(C.sizeof(Error))
lib.doorbell_package_inputs.restype = lib.doorbell_package_outputs.restype = C.c_size_t

def call(name, *args):
    if getattr(lib, "doorbell_" + name)(*args, C.byref(error)) != 0:
        raise RuntimeError(error.text.decode())

package, device, program, port = C.c_void_p(), C.c_void_p(), C.c_void_p(), Port()
call("package_open", sys.argv[2].encode(), 0, C.byref(package))
call("device_open", b"CPU", None, C.byref(device))
call("program_load", device, package, None, C.byref(program))
for i in range(lib.doorbell_package_inputs(package)):
    call("package_input", package, C.c_size_t(i), C.byref(port))
    values = (C.c_float * (port.max_bytes // 4))(*[n % 7 / 8 for n in range(port.max_bytes // 4)])
    call("program_write_input", program, C.c_size_t(i), values, C.c_size_t(port.max_bytes))
call("program_start", program)
call("program_wait", program, C.c_uint64(10**10))
for i in range(lib.doorbell_package_outputs(package)):
    call("package_output", package, C.c_size_t(i), C.byref(port))
    values = (C.c_float * (port.max_bytes // 4))()
    call("program_read_output", program, C.c_size_t(i), values, C.c_size_t(port.max_bytes))
    print(port.name.decode(), *["%.6f" % v for v in values[:4]])
