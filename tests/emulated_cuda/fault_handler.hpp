#pragma once

namespace emulated_cuda {

/// Installs a handler that reports a forbidden access to device memory on stderr before the process
/// dies. Idempotent.
void install_fault_handler();

/// Gives the calling thread a signal stack, so that the handler can report a stack overflow of a
/// kernel.
void use_signal_stack();

}  // namespace emulated_cuda
