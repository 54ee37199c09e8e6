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
/// Symmetric windows are registered by all ranks together: within `settle`, once all offer the same
/// arenas. What keeps an arena from it is an error on all ranks.
///
/// Order:   `offer` and `settle` by turns, on all ranks of the job alike.
/// Threads: any.
class NcclMemory final : public cuda::CommunicatedMemory {
 public:
  /// The variable TESSERA_NCCL_REGISTER switches it off (0).
  explicit NcclMemory(Registration how = Registration::buffer);

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
  /// CommError where windows cannot be.
  void settle(const std::vector<std::string>& offers);
  /// Nothing is registered any more: the communicators are about to end.
  void end() noexcept;

 private:
  struct Arena {
    std::int64_t number = 0;  // of this rank's, as they were made
    std::size_t bytes = 0;
    std::size_t rounding = 0;
    std::map<NcclComm*, void*> handles = {};  // NCCL's; null: not registered
    bool settled = false;                     // that it is registered has been agreed
  };

  void register_locked(void* data, Arena& arena, NcclComm& comm);
  void register_windows_locked();
  [[nodiscard]] std::map<std::int64_t, void*> by_number_locked() const;
  [[nodiscard]] std::string arenas_offered_locked() const;
  void deregister_locked(Arena& arena) noexcept;
  void deregister_all_locked() noexcept;

  const Registration how_;
  mutable std::mutex mutex_;
  std::vector<NcclComm*> comms_;
  std::map<void*, Arena> arenas_;
  std::int64_t made_ = 0;  // so many since the start
  std::string off_;        // why nothing is registered from now on
  bool off_agreed_ = false;
  bool differ_ = false;  // the ranks have not all made the same, so far
};

/// Why arenas cannot be registered; empty if they can.
[[nodiscard]] std::string registration_problem();
/// Of the library that is loaded: "registers arenas", or why not.
[[nodiscard]] std::string registration_text();

}  // namespace tessera::nccl
