#pragma once

namespace tessera {

/// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), all arithmetic in fp32:
///
///     m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g^2
///     w <- w - lr ( m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + wd w )
struct AdamW {
  float lr = 3e-4F;           ///< learning rate of the first step, 0 or more
  float beta1 = 0.9F;         ///< b1, in [0, 1)
  float beta2 = 0.95F;        ///< b2, in [0, 1)
  float eps = 1e-8F;          ///< added to the square root, above 0
  float weight_decay = 0.1F;  ///< wd, 0 or more
};

/// Adam (Kingma & Ba 2015). Weight decay is coupled: it is added to the gradient and so passes
/// through the moments.
///
///     g <- g + wd w
///     m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g^2
///     w <- w - lr m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)
struct Adam {
  float lr = 1e-3F;           ///< learning rate of the first step, 0 or more
  float beta1 = 0.9F;         ///< b1, in [0, 1)
  float beta2 = 0.999F;       ///< b2, in [0, 1)
  float eps = 1e-8F;          ///< added to the square root, above 0
  float weight_decay = 0.0F;  ///< wd, 0 or more
};

/// Lion (Chen et al. 2023). It has one moment, and uses only the sign of the update direction.
///
///     u = b1 m + (1-b1) g        w <- w - lr ( sign(u) + wd w )        m <- b2 m + (1-b2) g
struct Lion {
  float lr = 1e-4F;           ///< learning rate of the first step, 0 or more
  float beta1 = 0.9F;         ///< b1, in [0, 1)
  float beta2 = 0.99F;        ///< b2, in [0, 1)
  float weight_decay = 0.0F;  ///< wd, 0 or more
};

/// Stochastic gradient descent with momentum (no dampening, no Nesterov) and coupled decay:
///
///     g <- g + wd w        u <- mu u + g        w <- w - lr u
///
/// With momentum 0 there is no u and no optimizer memory.
struct SGD {
  float lr = 1e-2F;           ///< learning rate of the first step, 0 or more
  float momentum = 0.9F;      ///< mu, in [0, 1)
  float weight_decay = 0.0F;  ///< wd, 0 or more
};

}  // namespace tessera
