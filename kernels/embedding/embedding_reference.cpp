#include "kernels/embedding/embedding.hpp"

namespace tessera::kernels::reference {

void embedding_forward(const EmbeddingForward& args, Stream) {
  for (std::int64_t b = 0; b < args.batch; ++b) {
    for (std::int64_t t = 0; t < args.seq; ++t) {
      const std::int64_t at = b * args.seq + t;
      for (std::int64_t h = 0; h < args.hidden; ++h) {
        args.y[at * args.hidden + h] = args.token_table[args.tokens[at] * args.hidden + h] +
                                       args.position_table[t * args.hidden + h];
      }
    }
  }
}

void embedding_backward(const EmbeddingBackward& args, Stream) {
  for (std::int64_t at = 0; at < args.batch * args.seq; ++at) {
    const std::int64_t t = at % args.seq;
    for (std::int64_t h = 0; h < args.hidden; ++h) {
      const float dy = args.dy[at * args.hidden + h];
      if (args.dtoken_table != nullptr) {
        args.dtoken_table[args.tokens[at] * args.hidden + h] += dy;
      }
      if (args.dposition_table != nullptr) { args.dposition_table[t * args.hidden + h] += dy; }
    }
  }
}

}  // namespace tessera::kernels::reference
