#include "base/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <random>

#include "base/environment.hpp"

namespace tessera {

std::string machine_id() {
  std::string id = environment("TESSERA_MACHINE").value_or("");
  if (!id.empty()) { return id; }
  std::ifstream boot{"/proc/sys/kernel/random/boot_id"};
  if (std::getline(boot, id) && !id.empty()) { return id; }
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string machine_mark() {
  const std::string id = machine_id();
  return fmt::format("{:016x}", XXH3_64bits(id.data(), id.size()));
}

std::string unique_mark() {
  std::random_device device;
  const auto high = static_cast<std::uint64_t>(device()) << 32;
  return fmt::format("{}-{:016x}", machine_mark(), high | device());
}

}  // namespace tessera
