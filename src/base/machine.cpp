#include "base/machine.hpp"

#include <unistd.h>

#include <array>
#include <fstream>

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

}  // namespace tessera
