#pragma once

#include <pthread.h>

#include <string>
#include <string_view>
#include <thread>

namespace tessera::device {

/// Names `thread` for debuggers and `top`, within Linux's limit of 15 bytes.
inline void name_thread(std::thread& thread, std::string_view name) {
  constexpr std::size_t kMostBytes = 15;
  pthread_setname_np(thread.native_handle(), std::string{name.substr(0, kMostBytes)}.c_str());
}

}  // namespace tessera::device
