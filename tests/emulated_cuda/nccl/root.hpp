#pragma once

#include <string>

namespace emulated_nccl {

/// Starts a communicator's root, a thread of the process that made the unique id. All ranks connect
/// to it under `name`. It gathers their data in a group of calls and sends each rank its results.
/// It ends with the connections.
[[nodiscard]] bool start_root(const std::string& name);

}  // namespace emulated_nccl
