#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

/// What a communicator is, besides, whose backend counts the bytes that pass between two ranks.
class CountsTraffic {
 public:
  /// As peer_traffic, of the whole job.
  [[nodiscard]] virtual std::vector<std::size_t> sent_to_each() const = 0;

 protected:
  ~CountsTraffic() = default;
};

}  // namespace tessera
