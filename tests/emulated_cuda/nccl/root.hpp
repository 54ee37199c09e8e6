#pragma once

#include <string>

namespace emulated_nccl {

/// Begins the centre of a communicator, a thread of the process that has made the unique id: all
/// ranks connect to it under `name`, it gathers what they send in a group of calls, and gives each
/// what it is to get. It ends with the connections.
[[nodiscard]] bool start_root(const std::string& name);

}  // namespace emulated_nccl
