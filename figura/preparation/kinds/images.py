"""Pictures without annotations."""

from figura.base.pictures import picture_files
from figura.preparation.identities import Picture
from figura.preparation.people import Preparation
from figura.preparation.pictured import add_pictures
from figura.preparation.raw_folder import RawFolder
from figura.preparation.settings import Folders
from figura.preparation.splits import OF_ONE_VIDEO, TRAIN, drawn_apart, drawn_split, in_order, video_of

PREPARATION = Preparation


def add(preparation: Preparation, folders: Folders, source: RawFolder) -> list[str]:
    """Add folders of pictures without annotations."""
    for split in in_order(folders.splits):
        folder = source.directory(folders.splits[split], split)
        shares = folders.shares if split == TRAIN else {}
        files = picture_files(folder, preparation.left_out)
        pictures = [Picture(file, drawn_split(source.seed, shares, file, rest=split)) for file in files]
        add_pictures(preparation, pictures, (split, *shares), folder, source)
        frames = ((video, one.split) for one in pictures if (video := video_of(one.file)))
        preparation.notes += drawn_apart(frames, OF_ONE_VIDEO)
    return []
