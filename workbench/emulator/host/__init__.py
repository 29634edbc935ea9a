"""The host side: patches of CuTe DSL, the CUDA runtime and driver, and torch with an emulated device."""
