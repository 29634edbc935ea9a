// Finds functions in kernels.so, which build.py compiled: load kernels.so NAME... prints each.
// A function takes DLPack tensors on the GPU and integers in the order of the `call` in kernel.py:
//     (*launch)(x, y, rows, columns);   // tvm::ffi::Tensor or DLTensor*; it runs on the stream of TVM FFI's environment
// Compile with g++ -std=c++17 load.cpp $(tvm-ffi-config --cxxflags --ldflags --libs)
#include <cstdio>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    tvm::ffi::Module library = tvm::ffi::Module::LoadFromFile(words[1]);
    for (int n = 2; n < count; ++n) {
        tvm::ffi::Optional<tvm::ffi::Function> launch = library->GetFunction(words[n]);
        if (!launch.has_value()) return 1;
        std::printf("%s\n", words[n]);
    }
    return 0;
}
