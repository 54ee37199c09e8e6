#include "tessera/world/print.hpp"

#include <cstdarg>
#include <cstdio>
#include <iostream>

namespace tessera {
namespace {

bool prints(const World& world) {
  return world.rank() == 0 && !world.simulated();
}

}  // namespace

void print(const World& world, const char* format, ...) {
  if (!prints(world)) { return; }
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::fflush(stdout);
}

std::ostream& out(const World& world) {
  thread_local std::ostream nothing{nullptr};  // of a thread's own: its state changes
  return prints(world) ? std::cout : nothing;
}

}  // namespace tessera
