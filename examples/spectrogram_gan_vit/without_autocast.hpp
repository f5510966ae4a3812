// SPDX-License-Identifier: MIT
// For the few steps of a forward pass that 16 bits are too coarse for.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace spectrogram_gan {

/// Autocast is off for the device's type while it lives, on this thread.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(at::DeviceType device)
      : device_(device), was_enabled_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~WithoutAutocast() { at::autocast::set_autocast_enabled(device_, was_enabled_); }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
};

}  // namespace spectrogram_gan
