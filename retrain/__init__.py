"""How the other ways give up less: data, distillation, training."""
