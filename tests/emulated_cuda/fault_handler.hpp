#pragma once

namespace emulated_cuda {

/// Installs a handler: an access to device memory that is not allowed is named on stderr before the
/// process dies of it. Idempotent.
void install_fault_handler();

/// Gives the calling thread a stack for signals, so that the overflow of a kernel's stack is named.
void use_signal_stack();

}  // namespace emulated_cuda
