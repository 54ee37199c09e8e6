#pragma once

#include <cstddef>
#include <vector>

namespace tessera::comm {

/// A second interface of communicators whose backend counts the bytes between each two ranks.
class CountsTraffic {
 public:
  /// The same as peer_traffic, for the whole job.
  [[nodiscard]] virtual std::vector<std::size_t> sent_to_each() const = 0;

 protected:
  ~CountsTraffic() = default;
};

}  // namespace tessera::comm
