#pragma once

#include <latch>

#include "tessera/device/stream.hpp"

namespace tessera::test {

/// Blocks a stream until it is opened or destroyed.
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
