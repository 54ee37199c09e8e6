#pragma once

#include <c10/core/DispatchKey.h>

namespace tessera::torch {

class WrittenMemory;

/// A key of libtorch that a thread or a tensor can switch on, above autograd and all backends, and
/// that libtorch uses for nothing else: operators with it are shown. Tensors of places have it, so
/// that operators of other threads are shown too.
inline constexpr c10::DispatchKey kShownKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

/// While one lives, each operator of libtorch on this thread that reads or writes a Place is first
/// shown to the Passes of that place. Autograd's threads do the same for a backward pass begun by
/// this thread. Guards nest.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;
};

/// While one lives, operators on this thread are not shown: the adapter's own on places. Guards
/// nest.
class NoInterception {
 public:
  NoInterception();
  ~NoInterception();
  NoInterception(const NoInterception&) = delete;
  NoInterception& operator=(const NoInterception&) = delete;

 private:
  bool excluded_before_;
};

/// While one lives, the arguments and results of operators on this thread are shown to `memory`.
/// Guards nest: each sees what happens within it.
class NotedWrites {
 public:
  explicit NotedWrites(WrittenMemory& memory);
  ~NotedWrites();
  NotedWrites(const NotedWrites&) = delete;
  NotedWrites& operator=(const NotedWrites&) = delete;

 private:
  bool included_before_;
};

}  // namespace tessera::torch
