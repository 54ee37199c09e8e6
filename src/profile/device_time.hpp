#pragma once

#include <vector>

#include "tessera/trace/recorder.hpp"

namespace tessera::profile {

/// `records` of a rank with its instants moved to the device's time. Spans have it already;
/// instants have the host's, which is ahead by as much as the device has still to do: a scope's
/// opening moves to the begin of its span, and what follows it, in order, stays between that and
/// the next.
[[nodiscard]] std::vector<trace::Record> in_device_time(std::vector<trace::Record> records);

}  // namespace tessera::profile
