#include "base/machine.hpp"

#include <unistd.h>

#include <array>
#include <fstream>

namespace tessera {

std::string machine_id() {
  std::string id;
  std::ifstream boot{"/proc/sys/kernel/random/boot_id"};
  if (std::getline(boot, id) && !id.empty()) { return id; }
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace tessera
