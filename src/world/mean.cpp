#include "tessera/world/mean.hpp"

#include <cstring>
#include <string>

namespace tessera {

double mean(World& world, double value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  double sum = 0.0;
  for (const std::string& of_rank : world.exchange(bytes)) {
    double one = 0.0;
    std::memcpy(&one, of_rank.data(), sizeof one);
    sum += one;
  }
  return sum / world.size();
}

}  // namespace tessera
