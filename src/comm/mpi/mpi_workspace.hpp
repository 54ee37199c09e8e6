#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/mpi/mpi_requests.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm {

/// What one batch needs while it runs, allocated beforehand.
struct MpiWorkspace {
  struct Out {
    int peer;
    const std::byte* data;
    std::size_t bytes;
  };
  struct In {
    int peer;
    std::byte* data;  ///< null: into scratch
    std::size_t bytes;
  };

  MpiWorkspace(MpiProcess& process, Device& device, MemoryTracker& memory);
  /// On return nothing refers to a batch's memory, or MPI is no longer called.
  void take_back() noexcept;

  Buffer scratch;
  std::uint64_t hash = 0;             // of this rank's batch
  std::vector<std::uint64_t> hashes;  // by rank
  std::vector<Out> outs;
  std::vector<In> ins;
  std::vector<const void*> sources;  // by rank
  // Two steps are in progress at a time.
  std::array<MpiRequests, 2> requests;
};

/// A channel's workspaces: one for each stream whose batches run at the same time.
class MpiWorkspaces {
 public:
  MpiWorkspaces(MpiProcess& process, Device& device, MemoryTracker& memory);

  /// Makes a workspace for another stream.
  void add();

  /// Borrows a workspace while it lives.
  class Lease {
   public:
    explicit Lease(MpiWorkspaces& owner) : owner_{owner}, workspace_{owner.take()} {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { owner_.give_back(std::move(workspace_)); }
    [[nodiscard]] MpiWorkspace& operator*() const noexcept { return *workspace_; }

   private:
    MpiWorkspaces& owner_;
    std::unique_ptr<MpiWorkspace> workspace_;
  };

 private:
  [[nodiscard]] std::unique_ptr<MpiWorkspace> take();
  void give_back(std::unique_ptr<MpiWorkspace> workspace) noexcept;

  MpiProcess& process_;
  Device& device_;
  MemoryTracker& memory_;
  std::mutex lock_;
  std::vector<std::unique_ptr<MpiWorkspace>> free_;
};

}  // namespace tessera::comm
