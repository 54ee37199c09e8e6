#pragma once

// The kernels that Tessera's own layers are made of, for layers of one's own: every function of
// tessera/kernels. docs/own-layers.md has a table of them and a worked example. What holds for all:
//
// Streams: a function enqueues its kernel on `stream` and returns. The stream says where it
//          computes: a World's compute_stream(), which is a scope's stream(), or the one that
//          a CustomOptimizer's update is given; any other has no kernels (ContractError). On a
//          CPU's compute stream the kernel has run on return. On a rank that only counts (plan,
//          simulate_rank) nothing is computed, and the work is written into the rank's log, if it
//          has one.
// Arrays:  an address and its dtype (Values), row-major, in the memory of the stream's device, kept
//          by the caller until the stream has passed. Sizes are in elements. An array that holds no
//          element may be null. Arrays overlap only where said.
// Numbers: fp32, bf16 or fp16 are read exactly, computed with in fp32, and rounded once when they
//          are written, to nearest, ties to even, unless said.
// Bits:    the same call gives the same bits in every run on the same kind of machine and build,
//          whatever the number of threads and ranks. Backends differ from each other unless said.
// Memory:  nothing is allocated for a call. Attention takes a workspace of the caller's; others
//          work, on CUDA, in what the World has lent to its stream.
// Errors:  ContractError, before anything is enqueued, for arguments that do not fit; it
//          names them, with their numbers. What goes wrong when a kernel runs ends the stream.
// Threads: those of the stream: one at a time enqueues.

#include "tessera/kernels/attention.hpp"
#include "tessera/kernels/bias.hpp"
#include "tessera/kernels/cross_entropy.hpp"
#include "tessera/kernels/dropout.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/kernels/embedding.hpp"
#include "tessera/kernels/gelu.hpp"
#include "tessera/kernels/layer_norm.hpp"
#include "tessera/kernels/matmul.hpp"
#include "tessera/kernels/rms_norm.hpp"
#include "tessera/kernels/rotary.hpp"
#include "tessera/kernels/swiglu.hpp"
#include "tessera/kernels/vocab_cross_entropy.hpp"
