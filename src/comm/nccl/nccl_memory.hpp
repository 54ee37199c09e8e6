#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/nccl_comm.hpp"
#include "device/cuda/communicated_memory.hpp"

namespace tessera::nccl {

/// A rank's arenas that NCCL moves data straight from and to: memory of ncclMemAlloc, registered
/// with all of its communicators.
///
/// NCCL demands that all ranks pass registered buffers to a call, or none. So arenas are registered
/// where the ranks exchange texts anyway, which carry what each has to say of its own (`offer`),
/// and stay so where all ranks could register theirs (`settle`). Where one cannot, none is for the
/// rest of the run, and it is said why: data moves as well, through NCCL's buffers. Arenas that are
/// there when a communicator is added are registered with it as new ones are.
///
/// Order:   `offer` and `settle` by turns, on all ranks of the job alike.
/// Threads: any.
class NcclMemory final : public cuda::CommunicatedMemory {
 public:
  /// The variable TESSERA_NCCL_REGISTER switches it off (0).
  NcclMemory();

  /// What moves data from and to arenas, until `remove`, or `end`.
  void add(NcclComm& comm);
  /// Nothing is registered with it any more; nothing that it moves is under way.
  void remove(NcclComm& comm) noexcept;

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  [[nodiscard]] bool free(void* data) noexcept override;
  [[nodiscard]] std::size_t rounding_bytes() const override;
  [[nodiscard]] std::string text() const override;

  /// Registers what is new here. What the others are to know of it.
  [[nodiscard]] std::string offer();
  /// What all ranks offered, by rank: nothing is registered that is not with all of them.
  void settle(const std::vector<std::string>& offers);
  /// Nothing is registered any more: the communicators are about to end.
  void end() noexcept;

 private:
  struct Arena {
    std::size_t bytes = 0;
    std::size_t rounding = 0;
    std::map<NcclComm*, void*> handles = {};  // NCCL's; null: not registered
    bool settled = false;                     // that it is registered has been agreed
  };

  void register_locked(void* data, Arena& arena);
  void deregister_locked(Arena& arena) noexcept;
  void deregister_all_locked() noexcept;

  mutable std::mutex mutex_;
  std::vector<NcclComm*> comms_;
  std::map<void*, Arena> arenas_;
  std::int64_t made_ = 0;  // so many since the start
  std::string off_;        // why nothing is registered from now on
  bool off_agreed_ = false;
  bool differ_ = false;  // the ranks have not all made as many, so far
};

/// Of the library that is loaded: "registers arenas", or why not.
[[nodiscard]] std::string registration_text();

}  // namespace tessera::nccl
