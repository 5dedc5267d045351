//! The control plane of fsgather: coordinator and member machines, over threads and TCP
