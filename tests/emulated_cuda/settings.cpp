#include "emulated_cuda/settings.hpp"

#include <charconv>
#include <string>
#include <system_error>

#include "base/environment.hpp"
#include "emulated_cuda/access.hpp"
#include "emulated_cuda/misuse.hpp"

namespace emulated_cuda {
namespace {

template <class Number>
void read(const char* suffix, Number& value) {
  const std::string name = std::string{"TESSERA_EMULATED_CUDA_"} + suffix;
  const auto text = tessera::environment(name.c_str());
  if (!text) { return; }
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value < 0) {
    misuse("the environment variable " + name + " is no number: " + *text);
  }
}

Settings from_environment() {
  Settings settings;
  read("SEED", settings.seed);
  read("DEVICES", settings.devices);
  if (settings.devices > kMostDevices) { misuse("there are 8 emulated devices at most"); }
  read("BYTES", settings.device_bytes);
  read("DELAY_US", settings.most_delay_us);
  read("CAPABILITY", settings.capability);
  read("MULTIPROCESSORS", settings.multiprocessors);
  read("CONTEXT_BYTES", settings.context_bytes);
  read("OTHERS_BYTES", settings.others_bytes);
  read("QUEUE", settings.queue);
  read("CALLBACKS", settings.callbacks);
  read("NVML", settings.nvml);
  return settings;
}

std::uint64_t mixed(std::uint64_t x) {  // the finalizer of splitmix64
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

}  // namespace

Settings& settings() {
  static Settings settings = from_environment();
  return settings;
}

std::uint64_t drawn(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = mixed(settings().seed + 0x9E3779B97F4A7C15ULL);
  for (const std::uint64_t number : {a, b, c}) { x = mixed(x + 0x9E3779B97F4A7C15ULL + number); }
  return x;
}

}  // namespace emulated_cuda
