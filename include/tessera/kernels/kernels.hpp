#pragma once

// Includes every function of tessera/kernels: the kernels of Tessera's own layers, for layers that
// users write. docs/own-layers.md has a table of them and a worked example. Unless a function's
// comment says otherwise, these rules hold for all:
//
// Streams: a function enqueues its kernel on `stream` and returns. The stream decides where it
//          computes: a World's compute_stream(), which is also a scope's stream(), or the stream
//          that a CustomOptimizer's update is given. Any other stream has no kernels
//          (ContractError). On a CPU's compute stream the kernel has run on return. On a rank that
//          only counts (plan, simulate_rank) nothing is computed, and the rank's log, if it has
//          one, describes the work.
// Arrays:  an address and its dtype (Values), row-major, in the memory of the stream's device. The
//          caller keeps an array until the kernel has run. Sizes are in elements. An array without
//          elements may be null. Arrays must not overlap.
// Numbers: fp32, bf16 and fp16 are read exactly. Arithmetic is in fp32, and results are rounded
//          once, to nearest, ties to even.
// Bits:    the same call gives the same bits in every run on the same kind of machine and build,
//          whatever the number of threads and ranks. Backends differ from each other.
// Memory:  a call allocates nothing. The caller of attention gives it a workspace; other kernels
//          use, on CUDA, the workspace that the World has lent to their stream.
// Errors:  ContractError, before anything is enqueued, for arguments that do not fit; it names them
//          with their values. An error while a kernel runs ends the stream.
// Threads: one thread at a time enqueues on a stream.

#include "tessera/kernels/attention.hpp"
#include "tessera/kernels/bias.hpp"
#include "tessera/kernels/cross_entropy.hpp"
#include "tessera/kernels/dropout.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/kernels/embedding.hpp"
#include "tessera/kernels/gelu.hpp"
#include "tessera/kernels/glu.hpp"
#include "tessera/kernels/layer_norm.hpp"
#include "tessera/kernels/matmul.hpp"
#include "tessera/kernels/quantised.hpp"
#include "tessera/kernels/rms_norm.hpp"
#include "tessera/kernels/rotary.hpp"
#include "tessera/kernels/vocab_cross_entropy.hpp"
