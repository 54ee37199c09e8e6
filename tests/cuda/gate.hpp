#pragma once

#include <latch>

#include "tessera/device/stream.hpp"

namespace tessera::test {

/// Holds a stream up until it is opened, at the latest at its end.
class Gate {
 public:
  explicit Gate(Stream stream) : stream_{stream} {
    stream.call([this] { opened_.wait(); });
  }
  ~Gate() {
    open();
    try {
      stream_.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the test has seen the stream's error
    }
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    if (!opened_.try_wait()) { opened_.count_down(); }
  }

 private:
  Stream stream_;
  std::latch opened_{1};
};

}  // namespace tessera::test
