// SPDX-License-Identifier: MIT
// Instantiates virtual functions of LibTorch's class templates in a precompiled header, which saves clang 3 s
// in each translation unit. clang does not do so by itself: a precompiled header defines no vtable that would
// need them.
#pragma once

#include <torch/torch.h>

#ifdef __clang__  // g++ instantiates all in each translation unit
#include <iostream>
#include <memory>

#define LOOPTORCH_CLONEABLE(of)                                                                              \
  of(AdaptiveLogSoftmaxWithLossImpl) of(BilinearImpl) of(Conv1dImpl) of(Conv2dImpl) of(Conv3dImpl)           \
      of(ConvTranspose1dImpl) of(ConvTranspose2dImpl) of(ConvTranspose3dImpl) of(CrossMapLRN2dImpl)          \
          of(EmbeddingBagImpl) of(EmbeddingImpl) of(FoldImpl) of(FractionalMaxPool2dImpl)                    \
              of(FractionalMaxPool3dImpl) of(GRUCellImpl) of(GRUImpl) of(GroupNormImpl) of(LSTMCellImpl)     \
                  of(LSTMImpl) of(LayerNormImpl) of(LinearImpl) of(LocalResponseNormImpl) of(LogSoftmaxImpl) \
                      of(ModuleDictImpl) of(MultiheadAttentionImpl) of(ParameterDictImpl) of(RNNCellImpl)    \
                          of(RNNImpl) of(SequentialImpl) of(SoftmaxImpl) of(SoftminImpl) of(ThresholdImpl)   \
                              of(TransformerDecoderImpl) of(TransformerDecoderLayerImpl)                     \
                                  of(TransformerEncoderImpl) of(TransformerEncoderLayerImpl)                 \
                                      of(UnflattenImpl) of(UnfoldImpl)

namespace looptorch::testing {

template <auto... functions>
struct Used {};
#define LOOPTORCH_USE(Class) \
  template struct Used<&torch::nn::Cloneable<torch::nn::Class>::clone_>;  // private, so like this
LOOPTORCH_CLONEABLE(LOOPTORCH_USE)
#undef LOOPTORCH_USE

template <typename... Object>
void clone_each(const Object&... object) {
  ((void)object.clone(), ...);
}

template <typename... State>
void copy_each(const State&... state) {  // what their clone does, which is private
  ((void)std::make_unique<State>(state), ...);
}

template <typename... Convolution>
void use_convolutions(Convolution&... convolution) {
  (convolution.reset(), ...);
  (convolution.pretty_print(std::cout), ...);
}

template <typename... Type>
void compare_each(const Type&... type) {
  ((void)type.equals(type), ...);
}

template <typename... Dataset>
void get_each(Dataset&... dataset) {
  ((void)dataset.get_batch({}), ...);
}

// Is never called. Names that a version of LibTorch lacks may go; what is missing here costs time alone.
inline void use_virtual_functions() {
  using namespace torch::nn;
  using namespace torch::optim;
#define LOOPTORCH_USE(Class) (void)&clone_each<Cloneable<Class>>;
  LOOPTORCH_CLONEABLE(LOOPTORCH_USE)
#undef LOOPTORCH_USE
  (void)&use_convolutions<ConvNdImpl<1, Conv1dImpl>, ConvNdImpl<2, Conv2dImpl>, ConvNdImpl<3, Conv3dImpl>,
                          ConvNdImpl<1, ConvTranspose1dImpl>, ConvNdImpl<2, ConvTranspose2dImpl>,
                          ConvNdImpl<3, ConvTranspose3dImpl>, ConvTransposeNdImpl<1, ConvTranspose1dImpl>,
                          ConvTransposeNdImpl<2, ConvTranspose2dImpl>,
                          ConvTransposeNdImpl<3, ConvTranspose3dImpl>>;
  (void)&copy_each<AdagradParamState, AdamParamState, AdamWParamState, LBFGSParamState, RMSpropParamState,
                   SGDParamState>;
  (void)&clone_each<torch::jit::TensorsAttr, torch::jit::TypesAttr, torch::jit::ComplexValsAttr,
                    torch::jit::FloatsAttr, torch::jit::IntsAttr, torch::jit::StringsAttr>;
  using torch::data::datasets::Dataset;
  using torch::data::datasets::TensorDataset;
  (void)&get_each<Dataset<torch::data::datasets::MNIST>, Dataset<TensorDataset, torch::data::TensorExample>>;
  (void)&compare_each<c10::AwaitType, c10::FutureType, c10::ListType, c10::RRefType>;
}

}  // namespace looptorch::testing

#undef LOOPTORCH_CLONEABLE
#endif
