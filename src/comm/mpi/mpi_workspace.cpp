#include "comm/mpi/mpi_workspace.hpp"

#include "comm/staging.hpp"

namespace tessera::comm {
MpiWorkspace::MpiWorkspace(MpiProcess& process, Device& device, MemoryTracker& memory)
    : scratch{device, memory, Category::communicator, staging_bytes(CommKind::mpi, process.size()),
              "mpi staging"},
      requests{MpiRequests{process, 2 * static_cast<std::size_t>(process.size())},
               MpiRequests{process, 2 * static_cast<std::size_t>(process.size())}} {
  const auto ranks = static_cast<std::size_t>(process.size());
  hashes.resize(ranks);
  sources.resize(ranks);
  outs.reserve(ranks);
  ins.reserve(ranks);
}

void MpiWorkspace::take_back() noexcept {
  for (MpiRequests& each : requests) { each.take_back(); }
}

MpiWorkspaces::MpiWorkspaces(MpiProcess& process, Device& device, MemoryTracker& memory)
    : process_{process}, device_{device}, memory_{memory} {
  free_.push_back(std::make_unique<MpiWorkspace>(process, device, memory));
}

void MpiWorkspaces::add() {
  auto workspace = std::make_unique<MpiWorkspace>(process_, device_, memory_);
  const std::scoped_lock lock{lock_};
  free_.push_back(std::move(workspace));
}

std::unique_ptr<MpiWorkspace> MpiWorkspaces::take() {
  const std::scoped_lock lock{lock_};
  if (free_.empty()) {
    free_.reserve(free_.capacity() + 1);  // so that returning one cannot fail
    return std::make_unique<MpiWorkspace>(process_, device_, memory_);
  }
  std::unique_ptr<MpiWorkspace> workspace = std::move(free_.back());
  free_.pop_back();
  return workspace;
}

void MpiWorkspaces::give_back(std::unique_ptr<MpiWorkspace> workspace) noexcept {
  workspace->take_back();
  const std::scoped_lock lock{lock_};
  free_.push_back(std::move(workspace));
}

}  // namespace tessera::comm
