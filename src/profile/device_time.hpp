#pragma once

#include <vector>

#include "tessera/trace/recorder.hpp"

namespace tessera::profile {

/// A rank's `records` with the times of instants converted to the device's time. Spans already have
/// it. Instants have the host's time, which is ahead by the device's pending work. So a scope's
/// opening moves to the begin of its span, and later instants stay, in order, between that and the
/// next opening.
[[nodiscard]] std::vector<trace::Record> in_device_time(std::vector<trace::Record> records);

}  // namespace tessera::profile
