// Runs a model that Python compiled (export_model.py), without Python:
//
//   run_model model.pt2 [rows]
//
// Prints the sum of the first row of its result, which is 1.
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <vector>

int main(int count, char** arguments) {
  if (count < 2) {
    std::cerr << "usage: run_model model.pt2 [rows]\n";
    return 2;
  }
  try {
    const c10::InferenceMode mode;
    const int64_t rows = count > 2 ? std::atoll(arguments[2]) : 5;
    torch::inductor::AOTIModelPackageLoader model(arguments[1]);
    const at::Tensor input = at::linspace(-1, 1, rows * 16).view({rows, 16});
    const std::vector<at::Tensor> outputs = model.run({input.to("ocl")});
    std::cout << "output " << outputs[0].sizes() << " on " << outputs[0].device() << '\n'
              << "first row's sum " << outputs[0].cpu()[0].sum().item<float>() << '\n'
              << outputs[0].cpu().view(-1) << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
