// The same from C++: handles as owners, errors as exceptions.
#include <doorbell.h>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

struct Call {
    doorbell_error error{};
    Call() { error.struct_size = sizeof error; }
    void operator()(int32_t status) const {
        if (status != DOORBELL_OK) throw std::runtime_error(error.text);
    }
};

template <typename T, void (*Close)(T *)> struct Closer {
    void operator()(T *handle) const { Close(handle); }
};
using Device = std::unique_ptr<doorbell_device, Closer<doorbell_device, doorbell_device_close>>;
using Package = std::unique_ptr<doorbell_package, Closer<doorbell_package, doorbell_package_close>>;
using Program = std::unique_ptr<doorbell_program, Closer<doorbell_program, doorbell_program_close>>;

int main(int argc, char **argv) try {
    if (argc != 2) throw std::runtime_error("usage: run PACKAGE");
    Call call;
    doorbell_package *opened = nullptr;
    call(doorbell_package_open(argv[1], 0, &opened, &call.error));
    Package package(opened);
    doorbell_device *cpu = nullptr;
    call(doorbell_device_open("CPU", nullptr, &cpu, &call.error));
    Device device(cpu);
    doorbell_program *loaded = nullptr;
    call(doorbell_program_load(cpu, opened, nullptr, &loaded, &call.error));
    Program program(loaded);
    std::vector<std::vector<float>> memory;
    for (size_t i = 0; i < doorbell_package_inputs(opened); i++) {
        doorbell_port port;
        call(doorbell_package_input(opened, i, &port, &call.error));
        std::vector<float> &x = memory.emplace_back(port.max_bytes / sizeof(float));
        for (size_t n = 0; n < x.size(); n++) x[n] = static_cast<float>(n % 7) / 8.0f;
        call(doorbell_program_bind_input(loaded, i, x.data(), port.max_bytes, &call.error));
    }
    call(doorbell_program_start(loaded, &call.error));
    call(doorbell_program_wait(loaded, 10000000000ull, &call.error));
    for (size_t i = 0; i < doorbell_package_outputs(opened); i++) {
        doorbell_port port;
        call(doorbell_package_output(opened, i, &port, &call.error));
        std::vector<float> y(port.max_bytes / sizeof(float));
        call(doorbell_program_read_output(loaded, i, y.data(), port.max_bytes, &call.error));
        std::printf("%s", port.name);
        for (size_t n = 0; n < y.size() && n < 4; n++) std::printf(" %.6f", y[n]);
        std::printf("\n");
    }
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
