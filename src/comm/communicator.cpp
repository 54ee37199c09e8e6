#include "tessera/comm/communicator.hpp"

#include "comm/batch_check.hpp"

namespace tessera {

void Communicator::submit(Batch batch, Stream stream) {
  check(batch, rank_, size_);
  do_submit(std::move(batch), stream);
}

std::vector<std::string> Communicator::exchange(std::string message) {
  return do_exchange(std::move(message));
}

}  // namespace tessera
