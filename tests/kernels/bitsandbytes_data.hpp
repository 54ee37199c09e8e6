#pragma once

#include <string_view>

#include "kernels/bitsandbytes.hpp"

// Written by record_bitsandbytes.py with bitsandbytes 0.50.2 (its implementation in PyTorch) and
// torch 2.15.0+cu132.
namespace tessera::kernels::bitsandbytes {

inline constexpr std::string_view kDynamicMap =
    "bf7e3333bf7a999abf770000bf736666bf6fcccdbf6c3333bf68999abf650000bf616666bf5dcccdbf5a3333bf56"
    "999abf530000bf4f6666bf4bcccdbf483333bf44999abf410000bf3d6666bf39cccdbf363334bf32999abf2f0000"
    "bf2b6666bf27cccdbf243334bf20999abf1d0000bf196666bf15cccdbf123334bf0e999abf0b0000bf076666bf03"
    "ccccbf003333bef93332bef20000beeaccccbee3999abedc6666bed53333bece0000bec6ccccbebf999abeb86666"
    "beb13333beaa0000bea2ccccbe9b999abe946666be8d3334be860000be7d9999be6f3333be60cccdbe526666be44"
    "0000be35999abe273333be18cccdbe0a6666bdf80000bddb3334bdc9eb85bdc428f7bdbe6667bdb8a3d7bdb2e148"
    "bdad1eb8bda75c2abda1999abd9bd70abd96147bbd9051ebbd8a8f5dbd84cccdbd7e147bbd728f5dbd670a3dbd5b"
    "851fbd500000bd447ae1bd38f5c3bd2d70a3bd21eb85bd166667bd0ae148bcfeb852bce7ae15bcd0a3d7bcb9999a"
    "bca28f5dbc8b851fbc68f5c3bc3ae148bc1f3b64bc160418bc0ccccdbc039581bbf4bc6abbe24dd3bbcfdf3bbbbd"
    "70a4bbab020dbb989374bb8624ddbb676c8abb428f5cbb1db22dbaf1a9fcbaa7ef9dba7765ffba59e83eba3c6a80"
    "ba1eecc1ba016f01b9c7e283b98ce705b923d70bb8ba1f4bb88aefb3b8378034b7b24206b70205ffb65a1a94b513"
    "a3b7000000003513a3b7365a1a94370205ff37b2420638378034388aefb338ba1f4b3923d70b398ce70539c7e283"
    "3a016f013a1eecc13a3c6a803a59e83e3a7765ff3aa7ef9d3af1a9fc3b1db22d3b428f5c3b676c8a3b8624dd3b98"
    "93743bab020d3bbd70a43bcfdf3b3be24dd33bf4bc6a3c0395813c0ccccd3c1604183c1f3b643c3ae1483c68f5c3"
    "3c8b851f3ca28f5d3cb9999a3cd0a3d73ce7ae153cfeb8523d0ae1483d1666673d21eb853d2d70a33d38f5c33d44"
    "7ae13d5000003d5b851f3d670a3d3d728f5d3d7e147b3d84cccd3d8a8f5d3d9051eb3d96147b3d9bd70a3da1999a"
    "3da75c2a3dad1eb83db2e1483db8a3d73dbe66673dc428f73dc9eb853ddb33343df800003e0a66663e18cccd3e27"
    "33333e35999a3e4400003e5266663e60cccd3e6f33333e7d99993e8600003e8d33343e9466663e9b999a3ea2cccc"
    "3eaa00003eb133333eb866663ebf999a3ec6cccc3ece00003ed533333edc66663ee3999a3eeacccc3ef200003ef9"
    "33323f0033333f03cccc3f0766663f0b00003f0e999a3f1233343f15cccd3f1966663f1d00003f20999a3f243334"
    "3f27cccd3f2b66663f2f00003f32999a3f3633343f39cccd3f3d66663f4100003f44999a3f4833333f4bcccd3f4f"
    "66663f5300003f56999a3f5a33333f5dcccd3f6166663f6500003f68999a3f6c33333f6fcccd3f7366663f770000"
    "3f7a999a3f7e33333f800000";

inline constexpr Recorded kRecorded[] = {
    {.name = "with special blocks",
     .elems = 1065,
     .dtype = DType::fp32,
     .seed = 1,
     .special = true,
     .codes = 0xe35888a755b4bc50,
     .absmax = 0x8ef94ea0e228121a,
     .offset = 0x3d29e80c,
     .absmax_codes = "3a3d4738c63a3cff94cc383c48a2c4383c",
     .scales = "3e5585fd",
     .dequantised = {0xa65b84f8d63968f3, 0xba8660dfe7e0df71, 0x03017ec08d799cf3}},
    {.name = "of bf16",
     .elems = 19200,
     .dtype = DType::bf16,
     .seed = 2,
     .special = false,
     .codes = 0x97370103fb6a814f,
     .absmax = 0x4728efc906184fec,
     .offset = 0x3d0a50cd,
     .absmax_codes =
         "2d3339c3e52c323ea8da2d313da8f12d323cc5da2c3236c7ef2e333dc2ee2d3339a1dc2d323ac1f32c303dc"
         "5f62c333dbade2c3239cce92e303aa1f02c303dbfde2d3238caec2c3037c7f12c323bc4d42d333cbfd72d31"
         "3cc2ed2d3138c5e32d323dbff02c3241c0ef2d323bc2e92c343ab4e82c323bc5d82d2f3dc4ff2d323fc5f02"
         "c2f429fe42e323dbbd82c2f38c5e82d30396ae72d313dc2db2d333fc5e92d3140abe52d3039c4f32c323baa"
         "d12e323ebfed2d333ec4f22d3238c0f22d353aace42d333e64e32c313cbfeb2c303ac5e12d313eb4f12d323"
         "ec8e02d3148c9f32e3138c3eb2d323bcae32d323bb5e02e333db9f42d313bbbdc2d343bbee42c3140c8e42b"
         "2f3dc0ec292f3dcaf62a2f3ac5eb2a2e34caec2a3036b2e62a323cc2ff2a303ec9e4283339b5f4",
     .scales = "3d9ed79a3d8dd79a",
     .dequantised = {0xd3bd60cec458c4f6, 0xe27f5a191c3e50a8, 0x7ca093c799939c27}},
    {.name = "of fp32",
     .elems = 32768,
     .dtype = DType::fp32,
     .seed = 3,
     .special = false,
     .codes = 0x2b51bafe79385233,
     .absmax = 0x84bbb4e8ca94c4ce,
     .offset = 0x3d0a7c97,
     .absmax_codes =
         "2b313dc4dd2d313cc5e72c3039c0e42d3035c2ec2c3140c7f72b3040c5d72c3239a6e52b3336cae32d2f3a5"
         "eed2b323bc2eb2c323ac9f12c313ac2da2c3139b7f42c303cc2e42b2f3bc2dc2b313dc6f72d303abdff2b33"
         "3cbbf12b3141c2ea2d313ba8f72c3338c3f82d3139c3e82b303b67f32c333cbbd82b313bc1da2b303bb7e02"
         "c3138c1f22b303ab9f32b333dc0eb2b303cc1eb2b303bc2ec2c3139c6e62d2f3ec5e92b313fb2e62c323bbf"
         "fd2c2f39c3d92b3137c2f52b2f38bfe82b303ac2e22b323c6de32c313dbff82c313bc9ed2c3134c5e62c323"
         "ebfeb2d313dc0fc2c2f3dc9ea2b303ebfef2b323dc2f12c2f3ac1e42b2f3ba9e32b3247b6eb2d323bc2e52d"
         "333fc6da2c323ac6e52d303db9dd2c323cc2d92d343ec1ee2d353cc2e72d313ec5f62d324fc0ea2d3239bee"
         "32c323abaed2d323fc4ea2e3339c1ef2c3235b3ea2c313bc5ec2e323dc1e62c313bc3e62d3445c0e92d344b"
         "a7eb2d323f94db2d323bc1db2d3337bfeb2d323bc1ff2c343ec8e32e313cc1f32e333ec3e62c3547c5e32c3"
         "338b5f12e323eaee52d3242bff62e3438b2ee2d313dc3e22c3237cdef2d353ac4d92e323ba7e02e323bb3e9"
         "2e323eb7e42d3339c7ed2d333bc0e02d313ac0db2d303bc2e72c313cbfde2e3439c0e12d3242b9ee2e323ac"
         "2e42e333cbdf52d313cc1f22d3340c5e22c313bc4dc2e323fc7d52c3347c2e72e33",
     .scales = "3d98d4b43da2bbb4",
     .dequantised = {0x628a47f8f4bcbc9d, 0x672d12b6f3b54a90, 0x1ac7d7910caf7f6a}},
    {.name = "of fp16",
     .elems = 4554,
     .dtype = DType::fp16,
     .seed = 4,
     .special = true,
     .codes = 0x2a876f80ebb60fa9,
     .absmax = 0x45f03313e81503d5,
     .offset = 0x3d3c5339,
     .absmax_codes =
         "393b4037c0393aff67c6373a3e5ec0373a3fa4ff383a3759c5393a375fc938ff3f6c37393b3e5037393a3ff"
         "fc138373e5fc8393740a8c1ff3a3f37c5383a3f37cb393bffabca373a",
     .scales = "3e50eb32",
     .dequantised = {0x1e3caee82afa8784, 0x6482febaab8c6174, 0x949f3c62e322f409}},
};

}  // namespace tessera::kernels::bitsandbytes
