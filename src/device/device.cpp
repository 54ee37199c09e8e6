#include "tessera/device/device.hpp"

#include <fmt/format.h>

#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

std::string_view to_string(StreamPriority priority) noexcept {
  return priority == StreamPriority::high ? "high" : "usual";
}

std::string_view to_string(DeviceKind kind) noexcept {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::meta:
      return "meta";
  }
  return "unknown";
}

std::unique_ptr<WorkGraph> Device::make_graph() {
  throw ConfigError{
      fmt::format("the device {} cannot launch graphs; leave them out, or use cuda", name())};
}

void StreamDeleter::operator()(device::StreamState* state) const noexcept {
  delete state;
}

void EventDeleter::operator()(device::EventState* state) const noexcept {
  delete state;
}

}  // namespace tessera
