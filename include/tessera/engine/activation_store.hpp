#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tessera/base/view.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// What an ActivationStore is to hold.
struct ActivationStoreOptions {
  int count = 0;          ///< activations that are kept at once
  std::size_t bytes = 0;  ///< of each
  int slots = 3;          ///< of device memory: one is read, one is written, one is on its way
  std::string name = "activations";
};

/// Device memory that a store needs, and host memory of the rank's host pool.
struct ActivationStoreBytes {
  std::size_t device = 0;
  std::size_t host = 0;
  friend bool operator==(const ActivationStoreBytes&, const ActivationStoreBytes&) = default;
};

/// Keeps activations of one size from a forward pass to the backward pass in the rank's host pool:
/// on the device there are slots for a few of them. Copies run on a stream of their own, beside the
/// computation.
///
///   forward   absent --open--> in a slot --save--> and on its way to the host --close--> away
///   backward  away --fetch--> on its way back into a slot --read--> readable --close--> away
///
/// An activation that is closed without a `save` is gone: for passes that have no backward.
///
/// Time:    everything enqueues. What `open` gives may be written on the compute stream, and what
///          `read` gives may be read there, until `close`; a slot is used again when its copies and
///          its readers have finished.
/// Memory:  all of it taken in the constructor: `slots` on the device (activations, in use while
///          taken), `count` in the host pool (activations).
/// Errors:  ContractError for calls out of order and for more activations open at once than slots.
/// Threads: the rank's own thread.
class ActivationStore {
 public:
  ActivationStore(World& world, ActivationStoreOptions options);
  ~ActivationStore();
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  /// What the constructor allocates.
  [[nodiscard]] static ActivationStoreBytes bytes_needed(const ActivationStoreOptions& options);

  /// A slot that activation `index` is written to; what it held before is forgotten.
  [[nodiscard]] void* open(int index);
  /// The compute stream has written the activation: it goes to the host.
  void save(int index);
  /// The compute stream has read the activation last (for now, if it was saved).
  void close(int index);

  /// Begins to bring a saved activation back, if a slot is free and it is not there already: call
  /// it ahead of `read`, so that the copy runs meanwhile.
  void fetch(int index);
  /// The activation, readable on the compute stream.
  [[nodiscard]] const void* read(int index);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
