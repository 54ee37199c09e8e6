#include "device/cpu/host_task.hpp"
#include "kernels/embedding/embedding.hpp"

namespace tessera::kernels::cpu {
namespace {

void add_row(float* __restrict to, const float* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { to[i] += from[i]; }
}

void forward(const EmbeddingForward& args) {
  const std::int64_t hidden = args.hidden;
  for (std::int64_t at = 0; at < args.batch * args.seq; ++at) {
    const float* __restrict token = args.token_table + args.tokens[at] * hidden;
    const float* __restrict position = args.position_table + at % args.seq * hidden;
    float* __restrict y = args.y + at * hidden;
    for (std::int64_t h = 0; h < hidden; ++h) { y[h] = token[h] + position[h]; }
  }
}

void backward(const EmbeddingBackward& args) {
  const std::int64_t hidden = args.hidden;
  for (std::int64_t at = 0; at < args.batch * args.seq; ++at) {
    const float* dy = args.dy + at * hidden;
    if (args.dtoken_table != nullptr) {
      add_row(args.dtoken_table + args.tokens[at] * hidden, dy, hidden);
    }
    if (args.dposition_table != nullptr) {
      add_row(args.dposition_table + at % args.seq * hidden, dy, hidden);
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& args, Stream stream) {
  enqueue(stream, [=] { forward(args); });
}

void embedding_backward(const EmbeddingBackward& args, Stream stream) {
  enqueue(stream, [=] { backward(args); });
}

}  // namespace tessera::kernels::cpu
