#include "tessera/device/device.hpp"

#include "device/stream_state.hpp"

namespace tessera {

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

void StreamDeleter::operator()(StreamState* state) const noexcept {
  delete state;
}

void EventDeleter::operator()(EventState* state) const noexcept {
  delete state;
}

}  // namespace tessera
