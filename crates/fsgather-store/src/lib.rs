//! The shared directory of fsgather: names, payload files, publishing, collecting, deletion
