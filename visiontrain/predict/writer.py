"""Write what was found in many images into one folder, each under a name of its own."""

from __future__ import annotations

from pathlib import Path

from visiontrain.predict.files import free_stem, write_image
from visiontrain.predict.results import Results


class ResultWriter:
    """Writes results into a run's folder: pictures, texts in `labels/`, cut-outs in `crops/<class>/`.

    A picture and its text share a name. Nothing that is there is overwritten: equal names, from different
    folders or an earlier run, get `_2`, `_3` and so on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        save: bool = True,
        save_txt: bool = False,
        save_crop: bool = False,
        save_conf: bool = False,
        show_labels: bool = True,
        line_width: int | None = None,
    ) -> None:
        """Set what is written.

        Args:
            folder: The run's folder; it is made when something is written.
            save: Whether to write the pictures with what was found drawn in.
            save_txt: Whether to write texts: label files, or the best classes of a classification.
            save_crop: Whether to write each detection cut out; refused for classifications.
            save_conf: Whether label files hold the scores; a classification's texts do anyway.
            show_labels: Whether names and scores are drawn.
            line_width: Of the boxes drawn, pixels; by default it grows with the image. Refused for classifications.
        """
        self._folder = folder
        self._save = save
        self._save_txt = save_txt
        self._save_crop = save_crop
        self._save_conf = save_conf
        self._show_labels = show_labels
        self._line_width = line_width

    def write(self, results: Results) -> list[Path]:
        """Write one image's results; returns the files written.

        Raises:
            ConfigError: If cut-outs or a width of lines are asked for and this is a classification.
        """
        labels = self._folder / "labels"
        stem = free_stem(Path(results.path).stem, [(self._folder, ".jpg"), (labels, ".txt")])
        written = []
        if self._save:
            picture = self._folder / f"{stem}.jpg"
            write_image(picture, results.plot(labels=self._show_labels, line_width=self._line_width))
            written.append(picture)
        if self._save_txt:
            written.append(results.save_txt(labels / f"{stem}.txt", save_conf=self._save_conf))
        if self._save_crop:
            written += results.save_crop(self._folder / "crops", stem)
        return written
