#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl/nccl_comm.hpp"
#include "device/cuda/communicated_memory.hpp"

namespace tessera::comm::nccl {

/// A rank's arenas that NCCL moves data straight from and to: memory of ncclMemAlloc, registered
/// with all of its communicators.
///
/// NCCL demands that all ranks pass registered buffers to a call, or none. So arenas are registered
/// where the ranks exchange texts anyway: each rank's text carries its offer (`offer`), and arenas
/// stay registered if all ranks could register theirs (`settle`). If one cannot, none is for the
/// rest of the run, and the reason is reported: data then moves through NCCL's buffers. A
/// communicator that is added later gets the existing arenas too.
///
/// Symmetric windows are registered by all ranks together: within `settle`, once all offer the same
/// arenas. A failure to do so is an error on all ranks.
///
/// Order:   `offer` and `settle` alternate, alike on all ranks of the job.
/// Threads: any.
class NcclMemory final : public cuda::CommunicatedMemory {
 public:
  /// The environment variable TESSERA_NCCL_REGISTER=0 switches it off.
  explicit NcclMemory(Registration how = Registration::buffer);

  /// Registers arenas with `comm` until `remove` or `end`.
  void add(NcclComm& comm);
  /// Ends the registrations with `comm`, which must be idle.
  void remove(NcclComm& comm) noexcept;

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  [[nodiscard]] bool free(void* data) noexcept override;
  [[nodiscard]] std::size_t rounding_bytes() const override;
  [[nodiscard]] std::string text() const override;

  /// Registers new arenas here. Returns the text for the other ranks.
  [[nodiscard]] std::string offer();
  /// Takes the offers of all ranks, by rank, and keeps only registrations that all of them have.
  /// Throws CommError if windows cannot be registered.
  void settle(const std::vector<std::string>& offers);
  /// Ends all registrations: the communicators are about to end.
  void end() noexcept;

 private:
  struct Arena {
    std::int64_t number = 0;  // number of this rank's arenas, in order of creation
    std::size_t bytes = 0;
    std::size_t rounding = 0;
    std::map<NcclComm*, void*> handles = {};  // NCCL's handles; null: not registered
    bool settled = false;                     // whether ranks have agreed that it is registered
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
  std::int64_t made_ = 0;  // arenas made since the start
  std::string off_;        // why nothing is registered from now on
  bool off_agreed_ = false;
  bool differ_ = false;  // whether the ranks' arenas differ so far
};

/// Why arenas cannot be registered; empty if they can.
[[nodiscard]] std::string registration_problem();
/// For the loaded library: "registers arenas", or why it does not.
[[nodiscard]] std::string registration_text();

}  // namespace tessera::comm::nccl
