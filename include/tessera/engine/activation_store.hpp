#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tessera/base/view.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The sizes of an ActivationStore.
struct ActivationStoreOptions {
  int count = 0;          ///< activations that the store keeps
  std::size_t bytes = 0;  ///< bytes of one activation
  int slots = 3;          ///< slots on the device: to read one, write one and copy one at a time
  std::string name = "activations";  ///< the name in errors and in reports of memory
};

/// The bytes that a store allocates.
struct ActivationStoreBytes {
  std::size_t device = 0;  ///< bytes of device memory
  std::size_t host = 0;    ///< bytes of the rank's host pool
  friend bool operator==(const ActivationStoreBytes&, const ActivationStoreBytes&) = default;
};

/// Keeps activations of one size in the rank's host pool from a forward pass to its backward pass.
/// The device has slots for only a few of them. Copies run on a stream of their own, beside the
/// computation.
///
///     forward   absent --open--> in a slot --save--> and on its way to the host --close--> away
///     backward  away --fetch--> on its way back into a slot --read--> readable --close--> away
///
/// An activation that is closed without `save` is discarded, as in passes without a backward.
///
/// Time:    all calls enqueue. The compute stream may write what `open` returns, and read what
///          `read` returns, until `close`. A slot is used again once its copies and its readers
///          have finished.
/// Memory:  the constructor allocates everything: `slots` activations on the device, which count as
///          in use while their slots are taken, and `count` activations in the host pool. The store
///          borrows the World. Once the World has ended, the store can only be destroyed.
/// Errors:  ContractError for an index outside [0, count), for calls out of order, and for more
///          activations on the device at once than there are slots. OutOfMemory from the
///          constructor.
/// Threads: the rank's own thread.
class ActivationStore {
 public:
  /// Allocates the store. Throws ContractError unless `count`, `bytes` and `slots` are at least 1.
  ActivationStore(World& world, ActivationStoreOptions options);
  /// Frees the store once nothing enqueued uses it any more.
  ~ActivationStore();
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  /// Returns the bytes that the constructor allocates. Throws ContractError as it does.
  [[nodiscard]] static ActivationStoreBytes bytes_needed(const ActivationStoreOptions& options);

  /// Takes a slot for activation `index` and returns its address in device memory. The previous
  /// contents of the activation are discarded.
  [[nodiscard]] void* open(int index);
  /// Copies the activation to the host, after everything enqueued on the compute stream so far.
  /// Call it once for each `open`.
  void save(int index);
  /// Gives the slot back, after everything enqueued on the compute stream so far. A saved
  /// activation can be fetched and read again.
  void close(int index);

  /// Begins to copy a saved activation back to the device. It does nothing if the activation is on
  /// the device already or no slot is free. Call it ahead of `read`, so that the copy overlaps with
  /// computation.
  void fetch(int index);
  /// Returns the device address of the activation, which the compute stream may read. If `fetch`
  /// has not copied the activation, this call does.
  [[nodiscard]] const void* read(int index);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
